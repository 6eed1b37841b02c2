// Floor is the least that a client of a cluster can do to know the kubelet under every
// pod: it pages through nodes and pods in protobuf and drops them. What eksbg lag takes
// is held against it.
package main

import (
	"context"
	"fmt"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, side string) error {
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}, &clientcmd.ConfigOverrides{CurrentContext: side}).ClientConfig()
	if err != nil {
		return err
	}
	cfg.ContentType, cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf"
	k, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	for o := (metav1.ListOptions{Limit: 500}); ; {
		nodes, err := k.CoreV1().Nodes().List(ctx, o)
		if err != nil {
			return err
		}
		if o.Continue = nodes.Continue; o.Continue == "" {
			break
		}
	}
	for o := (metav1.ListOptions{Limit: 500}); ; {
		pods, err := k.CoreV1().Pods("").List(ctx, o)
		if err != nil {
			return err
		}
		if o.Continue = pods.Continue; o.Continue == "" {
			return nil
		}
	}
}
