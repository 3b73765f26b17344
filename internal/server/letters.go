package server

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/audit"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/server/submit"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// DeadLetters reads and changes consumers' dead letters. An error is a halfmsg.DeadLettersError, or that of the
// context. A page token is the place in the queue. changed is called with each changed letter.
type DeadLetters interface {
	Queues(ctx context.Context) []*adminv1.DeadLetterQueue
	List(ctx context.Context, r *adminv1.ListDeadLettersRequest) (*adminv1.ListDeadLettersResponse, error)
	Get(ctx context.Context, r *adminv1.GetDeadLetterRequest) (*adminv1.GetDeadLetterResponse, error)
	Count(
		ctx context.Context, r *adminv1.CountDeadLettersRequest,
	) (*adminv1.CountDeadLettersResponse, error)
	Replay(
		ctx context.Context, r *adminv1.ReplayDeadLettersRequest, changed DeadLetterChanged,
	) (*adminv1.ReplayDeadLettersResponse, error)
	Discard(
		ctx context.Context, r *adminv1.DiscardDeadLettersRequest, changed DeadLetterChanged,
	) (*adminv1.DiscardDeadLettersResponse, error)
}

// DeadLetterChanged is called with the name of a changed letter, and with where a replay publishes it.
type DeadLetterChanged = func(name, exchange, routingKey string)

// letterRequest is a request about the dead letters of a queue.
type letterRequest interface {
	proto.Message
	GetQueue() string
}

// letterCall checks a request about dead letters, and asks the desk.
func letterCall[A any](
	ctx context.Context, o *operators, r letterRequest, checks func(c *check), do func(DeadLetters) (A, error),
) (answer A, err error) {
	c := &check{}
	c.shortText("queue", r.GetQueue())
	if err = understood(r); err == nil {
		checks(c)
		err = c.err()
	}
	if err == nil && o.server.config.DeadLetters == nil {
		err = halfmsg.ErrNoDeadLetterQueues
	}
	if err == nil {
		answer, err = do(o.server.config.DeadLetters)
	}
	if err != nil {
		var none A
		call := strings.TrimSuffix(string(r.ProtoReflect().Descriptor().Name()), "Request")
		return none, o.server.fail(ctx, call, err, halfmsg.None)
	}
	return answer, nil
}

// ListDeadLetterQueues implements AdminService.
func (o *operators) ListDeadLetterQueues(
	ctx context.Context, _ *adminv1.ListDeadLetterQueuesRequest,
) (*adminv1.ListDeadLetterQueuesResponse, error) {
	response := &adminv1.ListDeadLetterQueuesResponse{}
	if desk := o.server.config.DeadLetters; desk != nil {
		response.Queues = desk.Queues(ctx)
	}
	return response, nil
}

// ListDeadLetters implements AdminService.
func (o *operators) ListDeadLetters(
	ctx context.Context, r *adminv1.ListDeadLettersRequest,
) (*adminv1.ListDeadLettersResponse, error) {
	inner := &adminv1.ListDeadLettersRequest{Queue: r.GetQueue(), Filter: r.GetFilter()}
	return letterCall(ctx, o, r, func(c *check) {
		c.letterFilter("filter.", r.GetFilter())
		inner.PageSize = int32(c.pageSize(r.GetPageSize())) //nolint:gosec // at most maxItems
		inner.PageToken = c.cursor(r.GetPageToken(), letterList{inner})
	}, func(desk DeadLetters) (*adminv1.ListDeadLettersResponse, error) {
		page, err := desk.List(ctx, inner)
		if err != nil {
			return nil, err
		}
		page.NextPageToken = writeToken(page.GetNextPageToken(), letterList{inner})
		for _, letter := range page.GetLetters() {
			o.server.showLetter(access.From(ctx), letter)
		}
		return page, nil
	})
}

// letterList is a listing of dead letters.
type letterList struct {
	*adminv1.ListDeadLettersRequest
}

func (l letterList) parts(cursor string) []string {
	return append([]string{cursor, l.GetQueue()}, letterFields(l.GetFilter())...)
}

// showLetter leaves of a letter what its caller may see.
func (s *Server) showLetter(caller access.Identity, letter *adminv1.DeadLetter) {
	if s.hides(caller) {
		letter.Message.Body, letter.Message.Headers = nil, nil
	}
}

// GetDeadLetter implements AdminService.
func (o *operators) GetDeadLetter(
	ctx context.Context, r *adminv1.GetDeadLetterRequest,
) (*adminv1.GetDeadLetterResponse, error) {
	return letterCall(ctx, o, r, func(c *check) {
		c.shortText("producer", r.GetProducer())
		c.shortText("id", r.GetId())
	}, func(desk DeadLetters) (*adminv1.GetDeadLetterResponse, error) {
		found, err := desk.Get(ctx, r)
		if err == nil {
			o.server.showLetter(access.From(ctx), found.GetLetter())
		}
		return found, err
	})
}

// CountDeadLetters implements AdminService.
func (o *operators) CountDeadLetters(
	ctx context.Context, r *adminv1.CountDeadLettersRequest,
) (*adminv1.CountDeadLettersResponse, error) {
	return letterCall(ctx, o, r, func(c *check) {
		c.letterSelection(r.GetSelection())
	}, func(desk DeadLetters) (*adminv1.CountDeadLettersResponse, error) { return desk.Count(ctx, r) })
}

// ReplayDeadLetters implements AdminService.
func (o *operators) ReplayDeadLetters(
	ctx context.Context, r *adminv1.ReplayDeadLettersRequest,
) (*adminv1.ReplayDeadLettersResponse, error) {
	c := letterChange[*adminv1.ReplayDeadLettersRequest, *adminv1.ReplayDeadLettersResponse]{
		call: "ReplayDeadLetters", action: audit.ReplayDeadLetters, do: DeadLetters.Replay,
	}
	return c.run(ctx, o, r)
}

// DiscardDeadLetters implements AdminService.
func (o *operators) DiscardDeadLetters(
	ctx context.Context, r *adminv1.DiscardDeadLettersRequest,
) (*adminv1.DiscardDeadLettersResponse, error) {
	c := letterChange[*adminv1.DiscardDeadLettersRequest, *adminv1.DiscardDeadLettersResponse]{
		call: "DiscardDeadLetters", action: audit.DiscardDeadLetters, do: DeadLetters.Discard,
	}
	return c.run(ctx, o, r)
}

// published counts replayed letters by exchange and routing key.
type published map[[2]string]int64

// texts describe the destinations for the audit trail. The largest of each exchange come before the others: a kept
// record holds the first texts, so many routing keys hide no exchange.
func (p published) texts() (texts []string) {
	var others []string
	known := map[string]bool{}
	for _, to := range slices.SortedFunc(maps.Keys(p), func(a, b [2]string) int {
		return cmp.Or(cmp.Compare(p[b], p[a]), slices.Compare(a[:], b[:]))
	}) {
		text := fmt.Sprintf("%d to exchange %q, routing key %q", p[to], to[0], to[1])
		if known[to[0]] {
			others = append(others, text)
			continue
		}
		known[to[0]], texts = true, append(texts, text)
	}
	return append(texts, others...)
}

// letterChange is a replay or a discard of dead letters.
type letterChange[Q letterChangeRequest, A interface{ GetProblem() string }] struct {
	call   string
	action audit.Action
	do     func(desk DeadLetters, ctx context.Context, r Q, changed DeadLetterChanged) (A, error)
}

// letterChangeRequest is the request of a replay or of a discard.
type letterChangeRequest interface {
	letterRequest
	GetSelection() *adminv1.DeadLetterSelection
	GetLimit() int32
	GetReason() string
}

// run changes letters, and records the change. A change that was begun goes on when its caller has gone, and ends early
// when the server stops: its outcome is recorded within the grace of the stop.
func (l letterChange[Q, A]) run(ctx context.Context, o *operators, r Q) (A, error) {
	return letterCall(ctx, o, r, func(c *check) {
		c.letterSelection(r.GetSelection())
		if limit := r.GetLimit(); limit < 0 || limit > maxChange {
			c.fail("limit", "must be from 1 to %d, or 0 for %d", maxChange, maxItems)
		}
	}, func(desk DeadLetters) (answer A, err error) {
		ctx := withOrigin(ctx)
		record, sent := l.begin(ctx, o.server, r), published{}
		defer func() { // also after a panic behind some changes
			if l.action == audit.ReplayDeadLetters {
				record.Destinations = sent.texts()
			}
			o.server.recordLetters(ctx, record)
		}()
		record.Cause = "an internal error ended the change" // unless the change returns
		changing, end := o.server.untilStop(ctx)
		defer end()
		answer, err = l.do(desk, changing, r, func(name, exchange, routingKey string) {
			record.Names = append(record.Names, name)
			sent[[2]string{exchange, routingKey}]++
		})
		if err != nil && changing.Err() != nil {
			err = submit.ErrStopping
		}
		if record.Cause = answer.GetProblem(); err != nil {
			record.Cause = err.Error()
		}
		return answer, err
	})
}

// begin records that the change begins, and returns the record of its outcome. A process that is killed meanwhile
// leaves the first record.
func (l letterChange[Q, A]) begin(ctx context.Context, s *Server, r Q) audit.Record {
	texts := append(textsOf([]filterField{{"queue", r.GetQueue()}}), letterTexts(r.GetSelection().GetFilter())...)
	record := audit.Record{
		Action: l.action, Reason: cut(r.GetReason()), Filter: strings.Join(texts, " "), Result: audit.Begun,
	}
	begun := record
	for _, n := range r.GetSelection().GetNames() {
		begun.Names = append(begun.Names, n.GetProducer()+"/"+n.GetId())
	}
	s.config.Audit.Record(ctx, begun)
	record.Result = audit.Done
	return record
}

// untilStop is a context that outlives the caller of a call, and ends when the server stops.
func (s *Server) untilStop(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	release := context.AfterFunc(s.stopping, cancel)
	return ctx, func() { release(); cancel() }
}

// recordLetters records which letters were changed, and apart from them why others were not: the cause. A change of no
// letter has a record, too: the record begun stays alone after a kill only.
func (s *Server) recordLetters(ctx context.Context, r audit.Record) {
	failed := r
	if r.Cause = ""; len(r.Names) > 0 || failed.Cause == "" {
		s.config.Audit.Record(ctx, r)
	}
	if failed.Names, failed.Destinations, failed.Result = nil, nil, audit.Failed; failed.Cause != "" {
		s.config.Audit.Record(ctx, failed)
	}
}

// letterSelection checks which letters are meant.
func (c *check) letterSelection(s *adminv1.DeadLetterSelection) {
	if len(s.GetNames()) == 0 {
		if s.GetFilter() == nil {
			c.fail("selection", "must have names or a filter: an empty filter selects every dead letter of the queue")
		}
		c.letterFilter("selection.filter.", s.GetFilter())
		return
	}
	c.count("selection.names", len(s.GetNames()))
	if s.GetFilter() != nil {
		c.fail("selection.names", "must be empty where a filter is set: the request is ambiguous")
	}
	for i, n := range s.GetNames() {
		c.shortText(item("selection.names", i)+".producer", n.GetProducer())
		c.shortText(item("selection.names", i)+".id", n.GetId())
	}
}

// letterFilter checks a filter. Any program may write a letter, so its texts have no form.
func (c *check) letterFilter(path string, f *adminv1.DeadLetterFilter) {
	for _, field := range []filterField{
		{"producer", f.GetProducer()},
		{"consumer", f.GetConsumer()},
		{"exchange", f.GetExchange()},
		{"routing_key", f.GetRoutingKey()},
	} {
		c.shortText(path+field.name, field.value)
	}
	c.words(path+"cause_contains", f.GetCauseContains(), maxErrorText)
	c.words(path+"cause", f.GetCause(), halfmsg.MaxCause)
	c.duration(path+"min_age", f.GetMinAge(), maxAge)
}

// letterFields are the texts of a filter that tell its listing from others.
func letterFields(f *adminv1.DeadLetterFilter) []string {
	return []string{
		f.GetProducer(), f.GetConsumer(), f.GetExchange(), f.GetRoutingKey(), f.GetCauseContains(), f.GetCause(),
	}
}

// letterTexts describes a filter for the audit trail.
func letterTexts(f *adminv1.DeadLetterFilter) []string {
	texts := textsOf([]filterField{
		{"producer", f.GetProducer()},
		{"consumer", f.GetConsumer()},
		{"exchange", f.GetExchange()},
		{"routing_key", f.GetRoutingKey()},
		{"cause_contains", f.GetCauseContains()},
		{"cause", f.GetCause()},
	})
	if age := f.GetMinAge().AsDuration(); age > 0 {
		texts = append(texts, "min_age="+age.String())
	}
	return texts
}
