package cli_test

import (
	"bytes"
	"testing"

	"github.com/msghandler/msghandler/internal/cli"
	"github.com/msghandler/msghandler/internal/cli/commandline"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// A reader who agrees by habit has not agreed to lose messages.
func TestDiscardWithoutVerdictAsksTheNumber(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]struct {
		status int
		out    string
	}{"y": {1, ""}, "2": {1, ""}, "1": {0, "discarded 1\n"}} {
		c := startCoordinator(t)
		c.add(msghandlerv1.State_STATE_ABANDONED, "orders", "2001")
		var out, errs bytes.Buffer
		status := cli.Run(t.Context(), commandline.Process{
			Args: []string{"discard", "--state=abandoned", "--server=" + c.addr},
			In:   answered(t, answer), Out: &out, Err: &errs,
		})
		ran{status, out.String(), errs.String()}.want(t, want.status, want.out,
			"Discard 1 abandoned message?\nTheir businesses may have committed. If so, consumers never get these messages: "+
				"they are lost, and the archive cannot replay them. A retry asks their producers.\nType 1 to go on: ")
	}
}
