package server_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/server"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
)

// letterBox is a queue of three dead letters, or an error.
type letterBox struct {
	server.DeadLetters
	err error
	// listed and changed are the last requests.
	listed  *adminv1.ListDeadLettersRequest
	changed *adminv1.DeadLetterSelection
}

func letterNamed(id string) *adminv1.DeadLetter {
	return &adminv1.DeadLetter{Producer: "orders", Message: &msghandlerv1.Message{
		Id: id, Headers: map[string]string{"card": "4111"}, Body: []byte("the body"),
	}}
}

func (b *letterBox) Queues(context.Context) []*adminv1.DeadLetterQueue {
	return []*adminv1.DeadLetterQueue{{Name: "payments"}}
}

func (b *letterBox) List(
	_ context.Context, r *adminv1.ListDeadLettersRequest,
) (*adminv1.ListDeadLettersResponse, error) {
	b.listed = r
	page := &adminv1.ListDeadLettersResponse{Letters: []*adminv1.DeadLetter{letterNamed("1")}}
	if r.GetPageToken() == "" {
		page.NextPageToken = "1"
	}
	return page, b.err
}

func (b *letterBox) Get(
	context.Context, *adminv1.GetDeadLetterRequest,
) (*adminv1.GetDeadLetterResponse, error) {
	return &adminv1.GetDeadLetterResponse{Letter: letterNamed("1")}, b.err
}

func (b *letterBox) Count(
	context.Context, *adminv1.CountDeadLettersRequest,
) (*adminv1.CountDeadLettersResponse, error) {
	return &adminv1.CountDeadLettersResponse{Count: 3}, b.err
}

func (b *letterBox) Replay(
	_ context.Context, r *adminv1.ReplayDeadLettersRequest, changed server.DeadLetterChanged,
) (*adminv1.ReplayDeadLettersResponse, error) {
	if b.changed = r.GetSelection(); b.err != nil {
		return nil, b.err
	}
	changed("orders/1", "shop", "paid")
	return &adminv1.ReplayDeadLettersResponse{Changed: 1, Problem: "replay orders/2: payroll is for others"}, nil
}

func (b *letterBox) Discard(
	_ context.Context, r *adminv1.DiscardDeadLettersRequest, changed server.DeadLetterChanged,
) (*adminv1.DiscardDeadLettersResponse, error) {
	b.changed = r.GetSelection()
	changed("orders/3", "shop", "paid")
	return &adminv1.DiscardDeadLettersResponse{Changed: 1}, b.err
}

func (b *letterBox) on(c *server.Config) { c.DeadLetters = b }

func everyLetter() *adminv1.DeadLetterSelection {
	return &adminv1.DeadLetterSelection{Filter: &adminv1.DeadLetterFilter{}}
}

func named(names ...*adminv1.MessageName) *adminv1.DeadLetterSelection {
	return &adminv1.DeadLetterSelection{Names: names}
}

func TestOnlyReadersSeeBodiesOfLetters(t *testing.T) {
	t.Parallel()
	box := &letterBox{}
	h := open(t, box.on, func(c *server.Config) { c.Access = authenticator(t, access.Rules{}, someTokens()) })
	for token, sees := range map[string]bool{"viewer": false, "reader": true, "operator": true, "admin": true} {
		ctx := withToken(t.Context(), token)
		one, err := h.operators.GetDeadLetter(ctx, &adminv1.GetDeadLetterRequest{Queue: "payments"})
		must.Succeed(t, err)
		list, err := h.operators.ListDeadLetters(ctx, &adminv1.ListDeadLettersRequest{Queue: "payments"})
		must.Succeed(t, err)
		for _, l := range append(list.GetLetters(), one.GetLetter()) {
			if m := l.GetMessage(); (len(m.GetBody()) > 0) != sees || (len(m.GetHeaders()) > 0) != sees || m.GetId() != "1" {
				t.Errorf("%s sees %v", token, m)
			}
		}
	}
}

// A change of letters names who, why, what, and where a replay went; and why letters stayed.
func TestChangesOfLettersAreRecorded(t *testing.T) {
	t.Parallel()
	trail, box := &recorded{}, &letterBox{}
	h := open(t, box.on, trail.keep)
	selected := everyLetter()
	selected.Filter.CauseContains = "stock"
	if _, err := h.operators.ReplayDeadLetters(t.Context(), &adminv1.ReplayDeadLettersRequest{
		Queue: "payments", Selection: selected, Reason: "fixed",
	}); err != nil {
		t.Fatal(err)
	}
	const filter = `"queue=\"payments\" cause_contains=\"stock\""`
	want := []string{
		` grpc replay_dead_letters begun / [] filter=` + filter + ` reason="fixed" `,
		` grpc replay_dead_letters done / [orders/1] filter=` + filter + ` reason="fixed" ` +
			`1 to exchange "shop", routing key "paid"`,
		` grpc replay_dead_letters failed / [] filter=` + filter + ` reason="fixed" replay orders/2: payroll is for others`,
	}
	if lines := trail.take(); !slices.Equal(lines, want) {
		t.Errorf("recorded %q, want %q", lines, want)
	}
	if _, err := h.operators.DiscardDeadLetters(t.Context(), &adminv1.DiscardDeadLettersRequest{
		Queue: "payments", Selection: named(&adminv1.MessageName{Producer: "orders"}),
	}); err != nil {
		t.Fatal(err)
	}
	want = []string{
		` grpc discard_dead_letters begun / [orders/] filter="queue=\"payments\"" reason="" `,
		` grpc discard_dead_letters done / [orders/3] filter="queue=\"payments\"" reason="" `,
	}
	if lines := trail.take(); !slices.Equal(lines, want) {
		t.Errorf("recorded %q, want %q", lines, want)
	}
	for _, call := range []error{
		func() error {
			_, err := h.operators.CountDeadLetters(t.Context(),
				&adminv1.CountDeadLettersRequest{Queue: "payments", Selection: everyLetter()})
			return err
		}(),
		func() error {
			_, err := h.operators.ListDeadLetterQueues(t.Context(), &adminv1.ListDeadLetterQueuesRequest{})
			return err
		}(),
	} {
		if lines := trail.take(); call != nil || len(lines) > 0 {
			t.Errorf("a look: %v, recorded %q", call, lines)
		}
	}
}

// fallible panics behind the first letter of a change.
type fallible struct{ *letterBox }

func (f fallible) Discard(
	ctx context.Context, r *adminv1.DiscardDeadLettersRequest, changed server.DeadLetterChanged,
) (*adminv1.DiscardDeadLettersResponse, error) {
	_, _ = f.letterBox.Discard(ctx, r, changed)
	panic("a letter that no reader can take")
}

func TestPanicKeepsTheRecordOfLetters(t *testing.T) {
	t.Parallel()
	trail := &recorded{}
	h := open(t, trail.keep, func(c *server.Config) { c.DeadLetters = fallible{&letterBox{}} })
	_, err := h.operators.DiscardDeadLetters(t.Context(), &adminv1.DiscardDeadLettersRequest{
		Queue: "payments", Selection: everyLetter(),
	})
	wantCode(t, err, codes.Internal)
	if lines := trail.take(); len(lines) != 3 || !strings.Contains(lines[1], " discard_dead_letters done / [orders/3] ") ||
		!strings.Contains(lines[2], " discard_dead_letters failed / [] ") {
		t.Errorf("recorded %q", lines)
	}
}

// vain changes no letter: another operator was there before.
type vain struct{ *letterBox }

func (vain) Discard(
	context.Context, *adminv1.DiscardDeadLettersRequest, server.DeadLetterChanged,
) (*adminv1.DiscardDeadLettersResponse, error) {
	return &adminv1.DiscardDeadLettersResponse{}, nil
}

// The record of the beginning stays alone after a kill only.
func TestChangeOfNothingHasItsOutcome(t *testing.T) {
	t.Parallel()
	trail := &recorded{}
	h := open(t, trail.keep, func(c *server.Config) { c.DeadLetters = vain{&letterBox{}} })
	if _, err := h.operators.DiscardDeadLetters(t.Context(), &adminv1.DiscardDeadLettersRequest{
		Queue: "payments", Selection: everyLetter(),
	}); err != nil {
		t.Fatal(err)
	}
	if lines := trail.take(); len(lines) != 2 || !strings.Contains(lines[1], " discard_dead_letters done / [] ") {
		t.Errorf("recorded %q", lines)
	}
}

// endless replays one letter, and then waits for a broker.
type endless struct {
	*letterBox
	begun chan struct{}
}

func (e endless) Replay(
	ctx context.Context, _ *adminv1.ReplayDeadLettersRequest, changed server.DeadLetterChanged,
) (*adminv1.ReplayDeadLettersResponse, error) {
	changed("orders/1", "shop", "paid")
	close(e.begun)
	<-ctx.Done()
	return &adminv1.ReplayDeadLettersResponse{Changed: 1, More: true}, nil
}

// A stop ends a replay within its grace and keeps its outcome. A kill would leave the record of the beginning.
func TestStopRecordsTheReplayUnderWay(t *testing.T) {
	t.Parallel()
	trail, box := &recorded{}, endless{&letterBox{}, make(chan struct{})}
	h := open(t, trail.keep, func(c *server.Config) { c.DeadLetters = box })
	answered := make(chan error, 1)
	go func() {
		_, err := h.operators.ReplayDeadLetters(t.Context(),
			&adminv1.ReplayDeadLettersRequest{Queue: "payments", Selection: everyLetter()})
		answered <- err
	}()
	<-box.begun
	if lines := trail.take(); len(lines) != 1 || !strings.Contains(lines[0], " replay_dead_letters begun ") {
		t.Errorf("while the replay runs, the trail has %q", lines)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := errors.Join(h.Stop(ctx), <-answered); err != nil {
		t.Error(err)
	}
	if lines := trail.take(); len(lines) != 1 || !strings.Contains(lines[0], " replay_dead_letters done / [orders/1] ") {
		t.Errorf("after the stop, the trail has %q", lines)
	}
}

// scattered replays letters to many routing keys, and one letter to another exchange.
type scattered struct{ *letterBox }

func (scattered) Replay(
	_ context.Context, _ *adminv1.ReplayDeadLettersRequest, changed server.DeadLetterChanged,
) (*adminv1.ReplayDeadLettersResponse, error) {
	for i := range 500 {
		changed("orders/1", "shop", fmt.Sprintf("%03d%s", i, strings.Repeat("x", 200)))
	}
	changed("orders/2", "payroll", "paid")
	return &adminv1.ReplayDeadLettersResponse{Changed: 501}, nil
}

// A letter chooses its routing key, so many keys must not push an exchange out of the record.
func TestRecordNamesEachDestination(t *testing.T) {
	t.Parallel()
	trail := &recorded{}
	h := open(t, trail.keep, func(c *server.Config) { c.DeadLetters = scattered{&letterBox{}} })
	if _, err := h.operators.ReplayDeadLetters(t.Context(),
		&adminv1.ReplayDeadLettersRequest{Queue: "payments", Selection: everyLetter()}); err != nil {
		t.Fatal(err)
	}
	to := trail.records[1].Destinations
	if len(to) != 501 || !slices.Contains(to[:2], `1 to exchange "payroll", routing key "paid"`) {
		t.Errorf("%d destinations, the first ones are %q", len(to), to[:min(2, len(to))])
	}
}

func TestRequestsAboutLettersAreBounded(t *testing.T) {
	t.Parallel()
	box := &letterBox{}
	h := open(t, box.on)
	long := strings.Repeat("x", 300)
	names := func(n int) (all []*adminv1.MessageName) {
		for range n {
			all = append(all, &adminv1.MessageName{Producer: "orders", Id: "1"})
		}
		return all
	}
	filter := func(f *adminv1.DeadLetterFilter) *adminv1.DeadLetterSelection {
		return &adminv1.DeadLetterSelection{Filter: f}
	}
	both := named(names(1)...)
	both.Filter = everyLetter().GetFilter()
	newer := everyLetter()
	newer.Filter.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1))
	for what, tc := range map[string]struct {
		selected *adminv1.DeadLetterSelection
		limit    int32
		want     codes.Code
	}{
		"every letter":      {everyLetter(), 10_000, codes.OK},
		"1,000 names":       {named(names(1000)...), 0, codes.OK},
		"1,001 names":       {named(names(1001)...), 0, codes.InvalidArgument},
		"no selection":      {nil, 0, codes.InvalidArgument},
		"neither":           {&adminv1.DeadLetterSelection{}, 0, codes.InvalidArgument},
		"names and filter":  {both, 0, codes.InvalidArgument},
		"limit over 10,000": {everyLetter(), 10_001, codes.InvalidArgument},
		"limit below 0":     {everyLetter(), -1, codes.InvalidArgument},
		"long producer":     {filter(&adminv1.DeadLetterFilter{Producer: long}), 0, codes.InvalidArgument},
		"long cause":        {filter(&adminv1.DeadLetterFilter{CauseContains: long}), 0, codes.InvalidArgument},
		"negative age":      {filter(&adminv1.DeadLetterFilter{MinAge: durationpb.New(-1)}), 0, codes.InvalidArgument},
		"unknown field":     {newer, 0, codes.Unimplemented},
	} {
		box.changed = nil
		_, err := h.operators.DiscardDeadLetters(t.Context(), &adminv1.DiscardDeadLettersRequest{
			Queue: "payments", Selection: tc.selected, Limit: tc.limit,
		})
		wantCode(t, err, tc.want)
		if (box.changed != nil) != (tc.want == codes.OK) {
			t.Errorf("%s: changed %v", what, box.changed)
		}
	}
	const bad = codes.InvalidArgument
	for size, want := range map[int32]codes.Code{-1: bad, 1001: bad, 1000: codes.OK} {
		_, err := h.operators.ListDeadLetters(t.Context(),
			&adminv1.ListDeadLettersRequest{Queue: "payments", PageSize: size})
		wantCode(t, err, want)
	}
}

// A token leads on in its own listing only.
func TestPagesOfLettersKeepTheirListing(t *testing.T) {
	t.Parallel()
	box := &letterBox{}
	h := open(t, box.on)
	first, err := h.operators.ListDeadLetters(t.Context(), &adminv1.ListDeadLettersRequest{Queue: "payments"})
	if err != nil || first.GetNextPageToken() == "" || box.listed.GetPageSize() != 100 {
		t.Fatal(first, err)
	}
	list := func(r *adminv1.ListDeadLettersRequest) error {
		r.PageToken = first.GetNextPageToken()
		_, err := h.operators.ListDeadLetters(t.Context(), r)
		return err
	}
	err = list(&adminv1.ListDeadLettersRequest{Queue: "payments"})
	if from := box.listed.GetPageToken(); err != nil || from != "1" {
		t.Errorf("the second page: %v, from %q", err, from)
	}
	wantCode(t, list(&adminv1.ListDeadLettersRequest{Queue: "stock"}), codes.InvalidArgument)
	wantCode(t, list(&adminv1.ListDeadLettersRequest{
		Queue: "payments", Filter: &adminv1.DeadLetterFilter{Exchange: "shop"},
	}), codes.InvalidArgument)
}

func TestErrorsOfLettersNameTheRemedy(t *testing.T) {
	t.Parallel()
	for want, kind := range map[string]error{
		"NO_DEAD_LETTERS": halfmsg.ErrNoDeadLetterQueues, "DEAD_LETTER_NOT_FOUND": halfmsg.ErrNoDeadLetter,
		"DEAD_LETTERS_BUSY": halfmsg.ErrDeadLettersBusy, "DEAD_LETTERS_UNREADABLE": halfmsg.ErrDeadLettersUnreadable,
		"TOO_MANY_DEAD_LETTERS": halfmsg.ErrTooManyDeadLetters,
	} {
		trail := &recorded{}
		box := &letterBox{err: &halfmsg.DeadLettersError{Kind: kind, Cause: context.DeadlineExceeded, Text: "do this"}}
		h := open(t, box.on, trail.keep)
		_, err := h.operators.ReplayDeadLetters(t.Context(),
			&adminv1.ReplayDeadLettersRequest{Queue: "payments", Selection: everyLetter()})
		if info, _ := reason(err); info.GetReason() != want || !strings.Contains(fmt.Sprint(err), "do this") {
			t.Errorf("got %v, want %s", err, want)
		}
		if lines := trail.take(); len(lines) != 2 || !strings.Contains(lines[1], " replay_dead_letters failed ") {
			t.Errorf("recorded %q", lines)
		}
	}
	_, err := open(t).operators.ListDeadLetters(t.Context(), &adminv1.ListDeadLettersRequest{Queue: "payments"})
	if info, _ := reason(err); info.GetReason() != "NO_DEAD_LETTERS" ||
		!strings.Contains(fmt.Sprint(err), "set dead_letters.NAME.queue") {
		t.Errorf("without a desk: %v", err)
	}
}
