package configstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/portero-dev/portero/internal/tokenbucket"
)

// Causes of an error, to be asked with errors.Is. What is none of them is an answer of Redis that nobody expected.
var (
	// ErrFenced refuses a publication because a later leader has published. See FencedError.
	ErrFenced = errors.New("a later leader has published")
	// ErrLost says that the namespace's hash or its revision is missing: FLUSHALL, an empty node, or never published. It
	// is no news about policies; a reader keeps what it has.
	ErrLost = errors.New("no revision is stored")
	// ErrUnreachable says that no answer came: the network, a dead node, a cluster that is down.
	ErrUnreachable = errors.New("redis is unreachable")
	// ErrDenied says that Redis refuses the user, the password or the command for this user.
	ErrDenied = errors.New("redis denies access")
	// ErrNoLibrary says that the Function library is not loaded on the node.
	ErrNoLibrary = errors.New("the function library is not loaded")
)

// FencedError tells whose publication was refused, and by which epoch. It is an ErrFenced.
type FencedError struct {
	Fence, Stored int64
}

func (e *FencedError) Error() string {
	return fmt.Sprintf("epoch %d is stored, above the fence %d: %v", e.Stored, e.Fence, ErrFenced)
}

// Is makes a FencedError an ErrFenced.
func (e *FencedError) Is(target error) bool { return target == ErrFenced }

// Classify puts the cause before an error of Redis or of the way to it.
func Classify(err error) error {
	if cause := causeOf(err); cause != nil {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

func causeOf(err error) error {
	var answer redis.Error
	if !errors.As(err, &answer) {
		var network net.Error
		if errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
			errors.Is(err, context.DeadlineExceeded) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, net.ErrClosed) {
			return ErrUnreachable
		}
		return nil
	}
	text := answer.Error()
	switch code, _, _ := strings.Cut(text, " "); code {
	case "NOAUTH", "WRONGPASS", "NOPERM":
		return ErrDenied
	case "CLUSTERDOWN", "MASTERDOWN", "LOADING", "TRYAGAIN", "MOVED", "ASK", "READONLY":
		return ErrUnreachable
	}
	switch {
	case tokenbucket.IsMissingFunction(err):
		return ErrNoLibrary
	case strings.Contains(text, "The user executing the script"):
		return ErrDenied
	case strings.Contains(text, "cluster has no nodes"):
		return ErrUnreachable
	}
	return nil
}

// fencedBy gives the FencedError that Redis' answer stands for, or nil.
func fencedBy(err error, fence int64) error {
	text, found := strings.CutPrefix(err.Error(), "FENCED ")
	if !found {
		return nil
	}
	if stored, err := strconv.ParseInt(text, 10, 64); err == nil {
		return &FencedError{Fence: fence, Stored: stored}
	}
	return nil
}
