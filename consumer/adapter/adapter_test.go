package adapter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/consumer/adapter"
)

// A handler that has decided is heard also when its time has ended.
func TestDecisionsOfRunningAndStoppedConsumers(t *testing.T) {
	t.Parallel()
	failure := errors.New("no database")
	ended, end := context.WithCancel(t.Context())
	end()
	for name, c := range map[string]struct {
		err              error
		running, stopped adapter.Decision
	}{
		"nil":           {nil, adapter.Acknowledge, adapter.Acknowledge},
		"duplicate":     {fmt.Errorf("order 1: %w", consumer.ErrDuplicate), adapter.Drop, adapter.Drop},
		"rejected":      {fmt.Errorf("order 1: %w", consumer.Reject(failure)), adapter.DeadLetter, adapter.DeadLetter},
		"busy":          {consumer.ErrBusy, adapter.Keep, adapter.GiveBack},
		"transient":     {consumer.Transient(failure), adapter.Keep, adapter.GiveBack},
		"rejected busy": {consumer.Reject(consumer.ErrBusy), adapter.DeadLetter, adapter.DeadLetter},
		"failed":        {failure, adapter.Retry, adapter.GiveBack},
		"panicked":      {&consumer.PanicError{Value: "no map"}, adapter.Retry, adapter.GiveBack},
	} {
		if got := adapter.Decide(t.Context(), c.err); got != c.running {
			t.Errorf("%s: the decision is %d, want %d", name, got, c.running)
		}
		if got := adapter.Decide(ended, c.err); got != c.stopped {
			t.Errorf("%s, after the handler's time: the decision is %d, want %d", name, got, c.stopped)
		}
	}
}

func TestDecisionOutlivesTheStop(t *testing.T) {
	t.Parallel()
	work, end := context.WithCancel(t.Context())
	running, cancel := adapter.Decided(work)
	defer cancel()
	end()
	if running.Err() == nil {
		t.Error("the context of a decision outlives the context of its handler")
	}
	stopped, cancel := adapter.Decided(work)
	defer cancel()
	if _, bounded := stopped.Deadline(); stopped.Err() != nil || !bounded {
		t.Errorf("the context of a decision after the stop: %v, bounded %t", stopped.Err(), bounded)
	}
}

func TestCauseIsOneBoundedLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                       "an error without a text",
		" \r\n":                  "an error without a text",
		"no\r\nsuch\t account\n": "no such account",
		"bad \xff byte":          "bad ? byte",
		strings.Repeat("ö", 21):  strings.Repeat("ö", 20),
	} {
		if got := adapter.Cause(text, 20); got != want {
			t.Errorf("the cause of %q is %q, want %q", text, got, want)
		}
	}
}
