package console

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/console/pages"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
)

// checkTimeout bounds all checks of a request: a probe waits no longer either.
const checkTimeout = 2 * time.Second

// readiness is the answer of /readyz.
type readiness struct {
	// Ready means: every required check holds and the coordinator is not stopping, so half messages are accepted.
	Ready bool `json:"ready"`
	// Degraded means: a check fails.
	Degraded bool            `json:"degraded"`
	Checks   []pages.Checked `json:"checks"`
}

func healthy(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"status": "alive"})
}

// strangersError stands for the errors of checks, which name servers and users, before callers without a role. Notes,
// such as that Redis has lost messages, are not for them either.
const strangersError = "failed; log in, or read the log of the coordinator, for the reason"

func (c *Console) ready(w http.ResponseWriter, r *http.Request) {
	answer := c.check(r.Context())
	if name := (&url.URL{Host: r.Host}).Hostname(); !c.known(name) || !c.gate.HasRole(w, r) {
		for i := range answer.Checks {
			one := &answer.Checks[i]
			if one.Note, one.Cause = "", nil; !one.OK {
				one.Error = strangersError
			}
		}
	}
	status := http.StatusOK
	if !answer.Ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, answer)
}

// Checks runs all checks.
func (c *Console) Checks(ctx context.Context) []pages.Checked { return c.check(ctx).Checks }

// check runs all checks in parallel, so that a hanging check delays no other.
func (c *Console) check(ctx context.Context) readiness {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	answer := readiness{Ready: true, Checks: make([]pages.Checked, len(c.config.Checks))}
	var group sync.WaitGroup
	for i, check := range c.config.Checks {
		group.Go(func() {
			if failure := lifecycle.Recovered(func() { answer.Checks[i] = run(ctx, check) }); failure != nil {
				answer.Checks[i] = pages.Failed(check.Name, cause.Part{}, failure)
				answer.Checks[i].Required = check.Required
			}
		})
	}
	group.Wait()
	if c.stopping.Load() {
		answer.Checks = append(answer.Checks, pages.Checked{
			Name: "process", Required: true, Error: "is stopping", Cause: &cause.NotServing,
		})
	}
	for _, one := range answer.Checks {
		answer.Ready = answer.Ready && (one.OK || !one.Required)
		answer.Degraded = answer.Degraded || !one.OK
	}
	return answer
}

func run(ctx context.Context, check Check) pages.Checked {
	one := pages.Checked{Name: check.Name, Required: check.Required, OK: true}
	if err := check.Run(ctx); err != nil {
		one = pages.Failed(check.Name, check.Part, err)
		one.Required = check.Required
	}
	if check.Note != nil {
		one.Note = check.Note()
	}
	return one
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	// The write fails only if the peer is gone.
	_ = encoder.Encode(v)
}
