package callback_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/internal/callback"
	"github.com/msghandler/msghandler/internal/halfmsg"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// A verdict counts only from the marker store that the messages name.
func TestOnlyTheNamedMarkerStoreCounts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		named, answered string
		counts          bool
	}{
		{"live", "live", true},
		{"live", "staging", false},
		{"live", "", false},
		{"", "staging", true},
		{"", "", true},
	} {
		b := &business{confirm: func(
			ctx context.Context, r *msghandlerv1.ConfirmRequest,
		) (*msghandlerv1.ConfirmResponse, error) {
			answer, err := committed(ctx, r)
			answer.MarkerStore = tc.answered
			return answer, err
		}}
		url := serveHTTP(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"confirmations":[{"id":"1","verdict":"VERDICT_COMMITTED"}],"markerStore":%q}`, tc.answered)
		})
		for _, address := range []string{serve(t, b), url} {
			var split []string
			c := client(t, callback.Config{Split: func(producer, named, answered string) {
				split = []string{producer, named, answered}
			}})
			to := halfmsg.Target{Producer: "orders", Address: address, MarkerStore: tc.named}
			verdicts, err := c.Confirm(t.Context(), to, []string{"1"}, true)
			if tc.counts {
				if err != nil || verdicts["1"] != halfmsg.VerdictCommitted || split != nil {
					t.Errorf("%+v at %s: %v, %v, reported %v", tc, address, verdicts, err, split)
				}
				continue
			}
			wantNoVerdict(t, verdicts, err)
			if strings.Join(split, " ") != "orders live "+tc.answered {
				t.Errorf("%+v at %s: reported %q", tc, address, split)
			}
		}
	}
}

// The identity in an answer comes from outside, and goes into findings, log lines and events.
func TestForeignIdentityIsToldInPrint(t *testing.T) {
	t.Parallel()
	b := &business{confirm: func(
		ctx context.Context, r *msghandlerv1.ConfirmRequest,
	) (*msghandlerv1.ConfirmResponse, error) {
		answer, err := committed(ctx, r)
		answer.MarkerStore = "\x1b[2J\n" + strings.Repeat("x", 50_000)
		return answer, err
	}}
	var told string
	c := client(t, callback.Config{Split: func(_, _, answered string) { told = answered }})
	to := halfmsg.Target{Producer: "orders", Address: serve(t, b), MarkerStore: "live"}
	verdicts, err := c.Confirm(t.Context(), to, []string{"1"}, true)
	wantNoVerdict(t, verdicts, err)
	if told == "" || len(told) > 400 || strings.ContainsAny(told, "\x1b\n") {
		t.Errorf("told %d bytes: %.40q", len(told), told)
	}
}

// wantNoVerdict wants an error as of a producer that cannot be reached: no attempt, and nothing about one message.
func wantNoVerdict(t *testing.T, verdicts map[string]halfmsg.Verdict, err error) {
	t.Helper()
	if err == nil || errors.Is(err, halfmsg.ErrCallFailed) || len(verdicts) > 0 ||
		!strings.Contains(err.Error(), "the marker store live") {
		t.Errorf("got %v, %v", verdicts, err)
	}
}
