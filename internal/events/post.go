package events

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"

	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/internal/ground/backoff"
)

// pauses are the waits before a post is tried again.
var pauses = backoff.Exponential(time.Second, time.Minute)

// farewell is for how long the last post may take when the process ends.
const lastPostTimeout = 2 * time.Second

// maxAnswer bounds the part of an answer that is read, so that the connection can be reused.
const maxAnswer = 64 << 10

// Post is the body of a post.
type Post struct {
	// ID names the post. A retried post has the same id.
	ID       string    `json:"id"`
	Instance string    `json:"instance"`
	SentAt   time.Time `json:"sent_at"`
	Events   []Event   `json:"events"`
	// Dropped is how many more events there were than can wait.
	Dropped int `json:"dropped,omitempty"`
}

// refusedError says that the webhook refuses a post for good.
type refusedError struct{ status string }

func (e *refusedError) Error() string { return "it answered " + e.status }

// newClient returns a client that follows no redirect: a server that the operator did not name gets no events and no
// token. For the same reason the client connects to no reserved address, whatever the name of the webhook resolves to.
func newClient(timeout time.Duration) *http.Client {
	dialer := net.Dialer{Control: refuseReserved}
	return &http.Client{
		Timeout: timeout,
		Transport: &http.Transport{
			DialContext:         dialer.DialContext,
			Proxy:               http.ProxyFromEnvironment,
			MaxIdleConnsPerHost: 1,
			IdleConnTimeout:     time.Minute,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// refuseReserved is the control of a dialer. It refuses the addresses that address.Reserved knows.
func refuseReserved(_, dialled string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(dialled)
	if err != nil {
		return errors.New("not an address that can be checked: " + dialled)
	}
	if network, is, reserved := address.Reserved(to.Addr()); reserved {
		return fmt.Errorf("the webhook is at %s, in %s (%s), which is never called; correct events.webhook",
			to.Addr(), network, is)
	}
	return nil
}

// run posts waiting events until the notifier is closed, and then once more.
func (t *Notifier) run(ctx context.Context) {
	defer t.client.CloseIdleConnections()
	for ctx.Err() == nil {
		select {
		case <-t.wake:
			_ = backoff.Sleep(ctx, t.config.Gather) // its error is the context's, and the last post is made anyway
		case <-ctx.Done():
		}
		t.deliver(ctx)
	}
	t.deliver(ctx) // events noted during the last post
}

// deliver posts the waiting events until the webhook accepts or refuses them for good, or the notifier is closed; after
// a close there is a last try.
func (t *Notifier) deliver(ctx context.Context) {
	taken, dropped := t.takeEvents()
	if len(taken) == 0 {
		return
	}
	p := Post{ID: rand.Text(), Instance: t.config.Instance, Events: taken, Dropped: dropped}
	for failures := 0; ctx.Err() == nil; failures++ {
		err := t.post(ctx, p)
		if t.settled(p, err) {
			return
		}
		if failures == 0 {
			t.config.Logger.Warn("the webhook takes no events; they wait", "events", len(p.Events), "cause", err)
		}
		_ = backoff.Sleep(ctx, pauses.Delay(failures)) // its error is the context's, which the loop looks at
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastPostTimeout)
	defer cancel()
	if err := t.post(last, p); !t.settled(p, err) {
		t.config.Logger.Warn("the webhook did not take the last events", "events", len(p.Events), "cause", err)
	}
}

// settled counts a post and says whether the post needs no retry.
func (t *Notifier) settled(p Post, err error) bool {
	if err == nil {
		t.config.Metrics.Posted("ok")
		return true
	}
	if refused := new(refusedError); errors.As(err, &refused) {
		t.config.Metrics.Posted("given_up")
		t.config.Logger.Error("the webhook refuses events; they are not posted again", "events", len(p.Events), "cause", err)
		return true
	}
	t.config.Metrics.Posted("failed")
	return false
}

func (t *Notifier) post(ctx context.Context, p Post) error {
	p.SentAt = time.Now().UTC()
	body, err := json.Marshal(p)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, t.config.URL(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "msghandler")
	if token := t.config.Token(); token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := t.client.Do(request)
	if err != nil {
		return withoutURL(err)
	}
	defer func() { _ = answer.Body.Close() }()
	_, _ = io.CopyN(io.Discard, answer.Body, maxAnswer)
	return judgeAnswer(answer)
}

// judgeAnswer classifies an answer. A post that may succeed later is retried.
func judgeAnswer(answer *http.Response) error {
	switch code := answer.StatusCode; {
	case code/100 == 2:
		return nil
	case code/100 == 5, code == http.StatusTooManyRequests, code == http.StatusRequestTimeout:
		return fmt.Errorf("it answered %s", answer.Status)
	default:
		return &refusedError{answer.Status}
	}
}

// withoutURL removes the URL from an error, because the URL may hold a secret.
func withoutURL(err error) error {
	if in := new(url.Error); errors.As(err, &in) {
		return in.Err
	}
	return err
}

// Close posts the waiting events once more and ends the notifier, within a few seconds and within ctx.
func (t *Notifier) Close(ctx context.Context) error {
	t.stop()
	if err := t.running.Wait(ctx); err != nil {
		return fmt.Errorf("the last events are still being posted: %w", err)
	}
	return nil
}
