package natsconn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
)

// ErrForbidden says that the user lacks a permission.
var ErrForbidden = nats.ErrPermissionViolation

// Refusals ends requests that the server forbids. The server answers no such request: its error comes apart from any
// answer, and names only the subject. The zero value is ready for use, concurrently, for one connection.
type Refusals struct {
	mu      sync.Mutex
	waiting map[*question]struct{}
	// deaf is why the user gets no answers at all.
	deaf error
}

// question is a request without an answer yet.
type question struct {
	subject string
	refuse  context.CancelCauseFunc
}

// Note takes an error that the server sent apart from any answer, and reports whether a request ends with the error.
func (r *Refusals) Note(err error) (taken bool) {
	subject := Forbidden(err)
	deaf := subject == "" && errors.Is(err, ErrForbidden)
	switch {
	case deaf:
		err = fmt.Errorf("the user may not subscribe to the subjects of its answers; grant the permission, or set the "+
			"option inbox_prefix: %w", err)
	case subject != "":
		err = fmt.Errorf("the user may not publish to %s; grant the permission: %w", subject, err)
	default:
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if deaf {
		r.deaf = err
	}
	for q := range r.waiting {
		if deaf || strings.HasPrefix(subject, q.subject) {
			q.refuse(err)
			taken = true
		}
	}
	return taken
}

// Ask makes a request, and ends its context when the server forbids the subject, or a subject that begins with it. Then
// the error says so, and wraps ErrForbidden.
func (r *Refusals) Ask(ctx context.Context, subject string, request func(context.Context) error) error {
	ctx, refuse := context.WithCancelCause(ctx)
	defer refuse(nil)
	q := &question{subject, refuse}
	r.mu.Lock()
	if r.waiting == nil {
		r.waiting = map[*question]struct{}{}
	}
	r.waiting[q] = struct{}{}
	deaf := r.deaf
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.waiting, q)
	}()
	if deaf != nil {
		return deaf
	}
	err := request(ctx)
	if why := context.Cause(ctx); err != nil && errors.Is(why, ErrForbidden) {
		return why
	}
	return err
}
