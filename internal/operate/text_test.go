package operate

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

func TestFiltersAreReadAsWritten(t *testing.T) {
	t.Parallel()
	now := time.Unix(2e9, 0)
	unfinished, err := MessageText{
		State: "dead", Producer: "orders", Exchange: "shop", Broker: "events", OlderThan: "10m", Error: "no exchange",
		Cause: "no …", ID: "o-", RoutingKey: "paid", Header: "tenant=a=b",
	}.Filter()
	if want := (&adminv1.MessageFilter{
		State: msghandlerv1.State_STATE_DEAD, Producer: "orders", Exchange: "shop", Broker: "events",
		MinAge: durationpb.New(10 * time.Minute), ErrorContains: "no exchange", Cause: "no …", IdPrefix: "o-",
		RoutingKey: "paid", Header: "tenant=a=b",
	}); err != nil || !proto.Equal(unfinished, want) {
		t.Errorf("got %v, %v", unfinished, err)
	}
	finished, err := FinishedText{State: "rolled_back", ID: "1", Since: "1h", Until: "10m"}.Filter(now)
	if want := (&adminv1.FinishedFilter{
		Ending: adminv1.Ending_ENDING_ROLLED_BACK, Id: "1",
		Since: timestamppb.New(now.Add(-time.Hour)), Until: timestamppb.New(now.Add(-10 * time.Minute)),
	}); err != nil || !proto.Equal(finished, want) {
		t.Errorf("got %v, %v", finished, err)
	}
	letters, err := DeadLetterText{Consumer: "payments", Cause: "no stock", OlderThan: "1h"}.Filter()
	if want := (&adminv1.DeadLetterFilter{
		Consumer: "payments", CauseContains: "no stock", MinAge: durationpb.New(time.Hour),
	}); err != nil || !proto.Equal(letters, want) {
		t.Errorf("got %v, %v", letters, err)
	}
}

func TestCountedFinishedMessagesHadEnded(t *testing.T) {
	t.Parallel()
	counted := time.Unix(2e9, 0)
	for until, want := range map[string]time.Time{
		"": counted, "2100-01-01": counted, "10m": counted.Add(-10 * time.Minute),
	} {
		read, err := FinishedText{Producer: "orders", Until: until}.Filter(counted)
		f := CountedFinished(read, counted)
		if err != nil || !f.GetUntil().AsTime().Equal(want) || f.GetProducer() != "orders" {
			t.Errorf("until %q: got %v, %v", until, f, err)
		}
	}
}

// A text that cannot be read selects nothing, and its error names the flag.
func TestWrongTextsNameTheirFields(t *testing.T) {
	t.Parallel()
	for field, texts := range map[string][]MessageText{
		"state":      {{State: "done"}, {State: "unspecified"}},
		"older-than": {{OlderThan: "yesterday"}, {OlderThan: "-1s"}},
		"header":     {{Header: "tenant"}, {Header: "=a"}},
	} {
		for _, text := range texts {
			var wrong *TextError
			if f, err := text.Filter(); f != nil || !errors.As(err, &wrong) || wrong.Field != field {
				t.Errorf("%+v: got %v, %v", text, f, err)
			}
		}
	}
	for field, text := range map[string]FinishedText{
		"state": {State: "pending"}, "since": {Since: "soon"}, "until": {Until: "-1h"}, "header": {Header: "a"},
	} {
		var wrong *TextError
		if f, err := text.Filter(time.Now()); f != nil || !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%+v: got %v, %v", text, f, err)
		}
	}
	if f, err := (DeadLetterText{OlderThan: "soon"}).Filter(); f != nil || err == nil {
		t.Errorf("got %v, %v", f, err)
	}
	if f, err := (FinishedText{State: "unspecified"}).Filter(time.Now()); f != nil || err == nil {
		t.Errorf("got %v, %v", f, err)
	}
}

func TestWordsAreValuesInSmallLetters(t *testing.T) {
	t.Parallel()
	for word, is := range map[string]string{
		Word(adminv1.EventKind_EVENT_KIND_GIVEN_UP):                "given_up",
		Word(adminv1.AuditAction_AUDIT_ACTION_REPLAY_DEAD_LETTERS): "replay_dead_letters",
		Word(adminv1.Ending_ENDING_UNSPECIFIED):                    "",
		Word(adminv1.Ending(99)):                                   "99",
	} {
		if word != is {
			t.Errorf("%q is no %q", word, is)
		}
	}
}

// page is an answer of a call that changes three messages.
func page(next string) MessagesAnswer {
	return &adminv1.RetryMessagesResponse{Changed: 3, NextPageToken: next}
}

func TestWalkKeepsToItsBounds(t *testing.T) {
	t.Parallel()
	failure := errors.New("away")
	always := func(int64) bool { return true }
	for name, c := range map[string]struct {
		most    int64
		fails   string // the token of the call that fails
		goOn    func(int64) bool
		changed int64
		next    string
		err     error
	}{
		"all that match":     {100, "", always, 9, "", nil},
		"at most so many":    {6, "", always, 6, "2", nil},
		"until it is enough": {100, "", func(changed int64) bool { return changed < 3 }, 3, "1", nil},
		"a failure":          {100, "1", always, 3, "1", failure},
	} {
		next := map[string]string{"0": "1", "1": "2", "2": ""}
		changed, token, err := Walk(c.most, "0", func(limit int64, token string) (MessagesAnswer, error) {
			if token == c.fails {
				return nil, failure
			}
			if limit < 1 || limit > c.most {
				t.Errorf("%s: a call for %d", name, limit)
			}
			return page(next[token]), nil
		}, c.goOn)
		if changed != c.changed || token != c.next || !errors.Is(err, c.err) {
			t.Errorf("%s: changed %d, next %q, %v", name, changed, token, err)
		}
	}
}
