package redistest

import (
	"context"
	_ "embed"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// clockSource is a library that is loaded before a node's own, see there.
//
//go:embed clock/clock.c
var clockSource string

const (
	clockLibrary = "clock.so"
	clockFile    = "clock"
)

// buildClock compiles the library with the C compiler that the race detector needs too.
func buildClock(ctx context.Context, dir string) error {
	source := filepath.Join(dir, "clock.c")
	if err := os.WriteFile(source, []byte(clockSource), 0o600); err != nil {
		return err
	}
	printed, err := exec.CommandContext(ctx, "cc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", filepath.Join(dir, clockLibrary), source).CombinedOutput()
	if err != nil {
		return fmt.Errorf("compile clock.c: %w: %s", err, printed)
	}
	return nil
}

// clockEnv is the environment of a node whose clock can be stepped.
func (n *Node) clockEnv() []string {
	return append(os.Environ(), "LD_PRELOAD="+filepath.Join(n.cluster.dir, clockLibrary), "PORTERO_CLOCK="+filepath.Join(n.dir, clockFile))
}

// StepClock sets how far the node's clock is from the machine's, at once and until it is set again, over restarts too. It needs Options.Clock.
// Only what is a time of day steps: what Redis measures by a monotonic clock goes on.
func (n *Node) StepClock(step time.Duration) error {
	file, err := os.OpenFile(filepath.Join(n.dir, clockFile), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("clock of node %s: %w", n.Addr(), err)
	}
	defer file.Close()
	if _, err := file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(step.Microseconds())), 0); err != nil { //nolint:gosec // the bits of a signed number
		return fmt.Errorf("clock of node %s: %w", n.Addr(), err)
	}
	return nil
}
