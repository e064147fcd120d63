package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

const namespace = "portero-demo"

func title(text string) { fmt.Printf("\n\033[1m%s\033[0m\n\n", text) }

// kubectl runs kubectl in the demo's namespace and returns what it printed.
func kubectl(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "kubectl", append([]string{"-n", namespace}, args...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// deploy applies app and policy, and renews the pods of an earlier demo, so that each one starts the same way.
func deploy(ctx context.Context) error {
	steps := [][]string{
		{"delete", "namespace", namespace, "--ignore-not-found", "--timeout=60s"},
		{"apply", "-f", "manifests/app.yaml"},
		{"apply", "-f", "manifests/policy.yaml"},
		{"rollout", "status", "deployment/web", "--timeout=90s"},
	}
	for _, args := range steps {
		out, err := kubectl(ctx, args...)
		if err != nil {
			return err
		}
		fmt.Print(out)
	}
	return nil
}

func waitEnforced(ctx context.Context) error { return waitCondition(ctx, "Enforced", "True") }

func waitCondition(ctx context.Context, condition, status string) error {
	_, err := kubectl(ctx, "wait", "rlp/web", "--for=condition="+condition+"="+status, "--timeout=60s")
	return err
}

// show prints what a user would look at.
func show(ctx context.Context) error {
	out, err := kubectl(ctx, "get", "rlp", "-o", "wide")
	if err != nil {
		return err
	}
	fmt.Printf("\n$ kubectl get rlp -o wide\n%s", out)
	return nil
}

func redis(ctx context.Context, command string) error {
	fmt.Printf("$ hack/cluster/redis %s\n", command)
	cmd := exec.CommandContext(ctx, "../cluster/redis", command)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("hack/cluster/redis %s: %w", command, err)
	}
	return nil
}
