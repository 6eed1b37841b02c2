package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
)

const (
	// replicas of each Deployment, and how many namespaces they are spread over.
	replicas   = 5
	namespaces = 10
	// seeders make Deployments at the same time.
	seeders = 8
	look    = 500 * time.Millisecond
)

// seed makes Deployments of 5 pods each until there are so many pods, and waits until
// all are ready.
func seed(ctx context.Context, k kubernetes.Interface, pods int) error {
	for i := range namespaces {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace(i)}}
		if _, err := k.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make a namespace: %w", err)
		}
	}
	todo := make(chan int)
	errs := make(chan error, seeders)
	var at sync.WaitGroup
	for range seeders {
		at.Go(func() {
			for i := range todo {
				if _, err := k.AppsV1().Deployments(namespace(i)).Create(ctx, deployment(i), metav1.CreateOptions{}); err != nil {
					errs <- fmt.Errorf("make a Deployment: %w", err)
					for range todo { // the others are not made any more
					}
					return
				}
			}
		})
	}
	for i := range pods / replicas {
		todo <- i
	}
	close(todo)
	at.Wait()
	select {
	case err := <-errs:
		return err
	default:
	}
	return ready(ctx, k)
}

// ready waits until every Deployment has all its pods.
func ready(ctx context.Context, k kubernetes.Interface) error {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		all, err := k.AppsV1().Deployments("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return fmt.Errorf("list Deployments: %w", err)
		}
		missing := 0
		for i := range all.Items {
			if !complete(&all.Items[i]) {
				missing++
			}
		}
		if missing == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the pods of %d Deployments: %w", missing, ctx.Err())
		case <-tick.C:
		}
	}
}

// complete is true for a Deployment that has what it wants and nothing else.
func complete(d *appsv1.Deployment) bool {
	s := d.Status
	gone := s.TerminatingReplicas == nil || *s.TerminatingReplicas == 0
	return s.ObservedGeneration >= d.Generation && s.Replicas == *d.Spec.Replicas && s.UpdatedReplicas == s.Replicas && s.ReadyReplicas == s.Replicas && gone
}

func namespace(i int) string { return fmt.Sprintf("bench-%d", i%namespaces) }

// deployment is one of a size as applications have it: two containers, probes, a dozen
// variables each, a projected token and a ConfigMap.
func deployment(i int) *appsv1.Deployment {
	app := fmt.Sprintf("service-%04d", i)
	n := int32(replicas)
	labels := map[string]string{
		"app.kubernetes.io/name": app, "app.kubernetes.io/instance": app, "app.kubernetes.io/part-of": "shop",
		"app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": app + "-1.4.2",
	}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: app, Labels: labels, Annotations: map[string]string{"meta.helm.sh/release-name": app, "meta.helm.sh/release-namespace": namespace(i)}},
		Spec: appsv1.DeploymentSpec{
			Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": app}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{"checksum/config": strings.Repeat("5d", 32), "prometheus.io/scrape": "true", "prometheus.io/port": "9090"}},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{container(app, "app", 8080), container("envoy", "proxy", 15001)},
					Volumes: []corev1.Volume{
						{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: app}}}},
						{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
					},
				},
			},
		},
	}
}

func container(image, name string, port int32) corev1.Container {
	probe := func(path string) *corev1.Probe {
		return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(port)}}, PeriodSeconds: 10}
	}
	c := corev1.Container{
		Name: name, Image: "111122223333.dkr.ecr.ap-northeast-1.amazonaws.com/" + image + ":2026-11-30-4f1c9d2",
		Ports:         []corev1.ContainerPort{{Name: name, ContainerPort: port}},
		Resources:     corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("125m"), "memory": resource.MustParse("256Mi")}, Limits: corev1.ResourceList{"memory": resource.MustParse("256Mi")}},
		LivenessProbe: probe("/healthz"), ReadinessProbe: probe("/readyz"),
		VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/etc/" + name, ReadOnly: true}, {Name: "tmp", MountPath: "/tmp"}},
	}
	for i := range 12 {
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("SHOP_SETTING_%02d", i), Value: "a value as settings have it"})
	}
	c.Env = append(c.Env, corev1.EnvVar{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}})
	return c
}
