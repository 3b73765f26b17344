package pages

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/operate"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// tray is an API with a dead letter, and counts its changes.
type tray struct {
	Admin
	replayed, discarded int
	// changed is the last selection that was changed.
	changed *adminv1.DeadLetterSelection
}

func (*tray) ListDeadLetterQueues(
	context.Context, *adminv1.ListDeadLetterQueuesRequest, ...grpc.CallOption,
) (*adminv1.ListDeadLetterQueuesResponse, error) {
	return &adminv1.ListDeadLetterQueuesResponse{Queues: []*adminv1.DeadLetterQueue{
		{Name: "payments", Queue: "payments.dead", Count: wrapperspb.Int64(3)}, {Name: "stock", Queue: "stock.dead"},
	}}, nil
}

const hostileCause = "<script>alert(1)</script>\u202e"

func (*tray) ListDeadLetters(
	context.Context, *adminv1.ListDeadLettersRequest, ...grpc.CallOption,
) (*adminv1.ListDeadLettersResponse, error) {
	return &adminv1.ListDeadLettersResponse{NextPageToken: "100", Letters: []*adminv1.DeadLetter{
		{Producer: "orders", Message: &msghandlerv1.Message{Id: "1"}, FirstCause: hostileCause},
	}}, nil
}

func (*tray) GetDeadLetter(
	context.Context, *adminv1.GetDeadLetterRequest, ...grpc.CallOption,
) (*adminv1.GetDeadLetterResponse, error) {
	return &adminv1.GetDeadLetterResponse{Letter: &adminv1.DeadLetter{
		Producer: "orders", Message: &msghandlerv1.Message{
			Id: "1", Body: []byte("the body"), Headers: map[string]string{"tenant": "the header"},
		},
	}}, nil
}

func (*tray) CountDeadLetters(
	context.Context, *adminv1.CountDeadLettersRequest, ...grpc.CallOption,
) (*adminv1.CountDeadLettersResponse, error) {
	return &adminv1.CountDeadLettersResponse{Count: 1, Destinations: []*adminv1.DeadLetterDestination{
		{Exchange: "orders", Count: 1, Refusal: "no such right"},
	}}, nil
}

func (t *tray) ReplayDeadLetters(
	_ context.Context, r *adminv1.ReplayDeadLettersRequest, _ ...grpc.CallOption,
) (*adminv1.ReplayDeadLettersResponse, error) {
	t.replayed++
	t.changed = r.GetSelection()
	return &adminv1.ReplayDeadLettersResponse{Changed: 1}, nil
}

func (t *tray) DiscardDeadLetters(
	_ context.Context, r *adminv1.DiscardDeadLettersRequest, _ ...grpc.CallOption,
) (*adminv1.DiscardDeadLettersResponse, error) {
	t.discarded++
	t.changed = r.GetSelection()
	return &adminv1.DiscardDeadLettersResponse{Changed: 1}, nil
}

// letterDesk is a console in front of a tray.
func letterDesk(change ...func(*Config)) (*desk, *tray) {
	letters := &tray{}
	with := func(c *Config) { c.Admin = func(string) Admin { return letters } }
	return newDesk(append(change, with)...), letters
}

// letterForm is a signed form of a reader.
func (d *desk) letterForm(role access.Role, action string) url.Values {
	hidden := letterSelection{
		Action: action, Names: []string{"orders/1"}, Filter: letterFilter{Queue: "payments"},
		tally: tally{Count: 1, Counted: time.Now()},
	}.text()
	reader := as(role, httptest.NewRequest(http.MethodPost, "/letters/change/do", nil))
	return url.Values{
		"selection": {hidden}, "token": {d.pages.tokens.Token(signed(reader, hidden))}, "reason": {"a test"},
	}
}

func TestRolesDecideAboutLetters(t *testing.T) {
	t.Parallel()
	for role := access.NoRole; role <= access.Admin; role++ {
		d, letters := letterDesk()
		_, listed := d.ask(role, "/letters?queue=payments", nil)
		_, page := d.ask(role, "/letter?queue=payments&name=orders/1", nil)
		want := role >= access.Viewer
		if strings.Contains(listed, "alert(1)") != want || strings.Contains(listed, "<script>a") {
			t.Errorf("%s sees the list:\n%s", role, listed)
		}
		for _, secret := range []string{"the body", "the header", "tenant"} {
			if strings.Contains(page, secret) != (role >= access.Reader) {
				t.Errorf("%s sees %q:\n%s", role, secret, page)
			}
		}
		for action, least := range map[string]access.Role{actReplay: access.Operator, actDiscard: access.Admin} {
			may := role >= least
			for _, page := range []string{page, listed} {
				if strings.Contains(page, `value="`+action+`"`) != may {
					t.Errorf("%s is offered %s, want %t:\n%s", role, action, may, page)
				}
			}
			selected := url.Values{"action": {action}, "queue": {"payments"}, "name": {"orders/1"}}
			for path, form := range map[string]url.Values{
				"/letters/change?" + selected.Encode(): nil, "/letters/change": selected,
				"/letters/change/do": d.letterForm(role, action),
			} {
				if status, page := d.ask(role, path, form); (status == http.StatusOK) != may {
					t.Errorf("%s, %s %s: got %d:\n%s", role, action, path, status, page)
				}
			}
		}
		if letters.replayed > 0 != (role >= access.Operator) || letters.discarded > 0 != (role == access.Admin) {
			t.Errorf("%s replayed %d and discarded %d", role, letters.replayed, letters.discarded)
		}
	}
}

func TestForgedLetterFormsChangeNothing(t *testing.T) {
	t.Parallel()
	d, letters := letterDesk()
	ofAnother := d.letterForm(access.Operator, actDiscard)
	changed := d.letterForm(access.Admin, actDiscard)
	changed.Set("selection", changed.Get("selection")+"&name=orders/2")
	empty := d.letterForm(access.Admin, actDiscard)
	empty.Set("reason", " ")
	for name, form := range map[string]url.Values{"of another reader": ofAnother, "changed": changed, "no reason": empty} {
		status, page := d.ask(access.Admin, "/letters/change/do", form)
		if status == http.StatusOK || letters.discarded > 0 {
			t.Errorf("%s: got %d:\n%s", name, status, page)
		}
	}
	once := d.letterForm(access.Admin, actDiscard)
	for _, want := range []int{http.StatusOK, http.StatusForbidden} {
		if status, _ := d.ask(access.Admin, "/letters/change/do", once); status != want || letters.discarded != 1 {
			t.Errorf("got %d, want %d; discarded %d times", status, want, letters.discarded)
		}
	}
	d, _ = letterDesk(func(c *Config) { c.ReadOnly = true })
	if status, _ := d.ask(access.Admin, "/letters/change/do", d.letterForm(access.Admin, actReplay)); status !=
		http.StatusForbidden {
		t.Errorf("read-only: got %d", status)
	}
}

func TestLettersWithoutConfigurationSayHow(t *testing.T) {
	t.Parallel()
	d := newDesk(func(c *Config) { c.Admin = func(string) Admin { return noTray{} } })
	if _, page := d.ask(access.Viewer, "/letters", nil); !strings.Contains(page, "queue: payments.dead") {
		t.Errorf("the page is\n%s", page)
	}
}

type noTray struct{ Admin }

func (noTray) ListDeadLetterQueues(
	context.Context, *adminv1.ListDeadLetterQueuesRequest, ...grpc.CallOption,
) (*adminv1.ListDeadLetterQueuesResponse, error) {
	return &adminv1.ListDeadLetterQueuesResponse{}, nil
}

// A form without names changes what its filter selects, and no letter comes of age between the count and the change.
func TestLetterFormsKeepTheirSelection(t *testing.T) {
	t.Parallel()
	counted := time.Now().Add(-time.Minute)
	for what, s := range map[string]letterSelection{
		"names": {Names: []string{"orders/1", "orders/"}},
		"filter": {
			Filter: letterFilter{Queue: "payments", DeadLetterText: operate.DeadLetterText{Cause: "no stock", OlderThan: "1h"}},
			tally:  tally{Counted: counted},
		},
	} {
		got := s.request()
		var names []string
		for _, n := range got.GetNames() {
			names = append(names, n.GetProducer()+"/"+n.GetId())
		}
		f := got.GetFilter()
		if !slices.Equal(names, s.Names) || (f == nil) != (what == "names") || f.GetCauseContains() != s.Filter.Cause ||
			f != nil && f.GetMinAge().AsDuration() < time.Hour+time.Minute {
			t.Errorf("%s: %v", what, got)
		}
	}
}
