package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/eksbg/eksbg/internal/sandbox"
)

// defaultSpeed makes an hour of the world pass in about half a minute.
const defaultSpeed = 120

func newSandboxCommand(s streams) *cobra.Command {
	var o sandbox.Options
	var scenario string
	cmd := &cobra.Command{
		Use:   "sandbox",
		Short: "Serve a pair of EKS clusters, Route 53 and ELBv2 on loopback to try things on",
		Long: "Serves a whole world on loopback: two EKS clusters on Fargate with their Kubernetes\n" +
			"APIs, Route 53, ELBv2, STS, DNS and load balancers, in their real wire protocols.\n" +
			"Writes env, kubeconfig and plan.yaml to --dir, prints `ready`, and serves until\n" +
			"interrupted. eksbg, aws and kubectl work with it unmodified:\n\n" +
			"  D=$(mktemp -d); eksbg sandbox --dir $D &\n" +
			"  while ! [ -f $D/env ]; do sleep 0.1; done; . $D/env\n" +
			"  eksbg plan $D/plan.yaml",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			sc, err := sandbox.Load(scenario)
			if err != nil {
				return err
			}
			o.Scenario, o.Hints = sc, s.err
			ctx, stop := withSignals(cmd.Context(), s, "Stopping.")
			defer stop()
			return sandbox.Serve(ctx, s.out, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&scenario, "scenario", "hot", "a built-in scenario ("+strings.Join(sandbox.Names(), ", ")+") or a `FILE`")
	f.StringVar(&o.Dir, "dir", "", "the `DIR` for env, kubeconfig, plan.yaml, requests.ndjson and world.json")
	f.Float64Var(&o.Speed, "speed", defaultSpeed, "how many times faster than in the real world things happen")
	if err := cmd.MarkFlagRequired("dir"); err != nil {
		panic(fmt.Sprintf("sandbox: %v", err)) // the flag is declared above
	}
	return cmd
}
