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

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/peerstats"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// as gives a request the identity of a person with a role.
func as(role access.Role, r *http.Request) *http.Request {
	who := access.Identity{Kind: access.Token, Name: "token:" + role.String(), Role: role}
	return r.WithContext(access.With(r.Context(), who))
}

// office is an API with a dead message, which counts its changes.
type office struct {
	lister
	retried, discarded, replayed int
	// replays are the requests to replay messages; next is the page token behind the first page.
	replays []*adminv1.ReplayMessagesRequest
	next    string
}

func (*office) GetMessage(
	context.Context, *adminv1.GetMessageRequest, ...grpc.CallOption,
) (*adminv1.GetMessageResponse, error) {
	return &adminv1.GetMessageResponse{Record: &adminv1.MessageRecord{
		Producer: "orders", State: msghandlerv1.State_STATE_DEAD, Message: &msghandlerv1.Message{
			Id: "1", Body: []byte("the body"), Headers: map[string]string{"tenant": "the header"},
		},
	}}, nil
}

func (o *office) RetryMessages(
	_ context.Context, r *adminv1.RetryMessagesRequest, _ ...grpc.CallOption,
) (*adminv1.RetryMessagesResponse, error) {
	if !r.GetDryRun() {
		o.retried++
	}
	return &adminv1.RetryMessagesResponse{Changed: 1}, nil
}

func (o *office) DiscardMessages(
	_ context.Context, r *adminv1.DiscardMessagesRequest, _ ...grpc.CallOption,
) (*adminv1.DiscardMessagesResponse, error) {
	if !r.GetDryRun() {
		o.discarded++
	}
	return &adminv1.DiscardMessagesResponse{Changed: 1}, nil
}

func (o *office) ReplayMessages(
	_ context.Context, r *adminv1.ReplayMessagesRequest, _ ...grpc.CallOption,
) (*adminv1.ReplayMessagesResponse, error) {
	o.replays = append(o.replays, r)
	if !r.GetDryRun() {
		o.replayed++
	}
	response := &adminv1.ReplayMessagesResponse{Changed: 1}
	if r.GetPageToken() == "" {
		response.NextPageToken = o.next
	}
	return response, nil
}

func noPeers() Peers { return &peerstats.Registry{} }

// desk is a console in front of an office.
type desk struct {
	*office
	mux     *http.ServeMux
	pages   *Pages
	refused []string
}

func newDesk(change ...func(*Config)) *desk {
	d := &desk{office: &office{}, mux: http.NewServeMux()}
	config := Config{
		Admin: func(string) Admin { return d.office }, Peers: noPeers,
		Stats:   func(context.Context) ([]halfmsg.Stat, error) { return nil, nil },
		Refused: func(_ *http.Request, why string) { d.refused = append(d.refused, why) },
	}
	for _, f := range change {
		f(&config)
	}
	d.pages = New(config)
	d.pages.Register(d.mux)
	return d
}

// ask sends a request, or a form, of a person with a role.
func (d *desk) ask(role access.Role, path string, form url.Values) (status int, page string) {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	if form != nil {
		r = httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	w := httptest.NewRecorder()
	d.mux.ServeHTTP(w, as(role, r))
	return w.Code, w.Body.String()
}

// form is a signed form of a reader.
func (d *desk) form(role access.Role, action string) url.Values {
	hidden := selection{
		Action: action, Names: []halfmsg.Name{{Producer: "orders", ID: "1"}}, Filter: ofState(halfmsg.Dead),
		tally: tally{Count: 1, Counted: time.Now()},
	}.text()
	reader := as(role, httptest.NewRequest(http.MethodPost, "/change/do", nil))
	return url.Values{
		"selection": {hidden}, "token": {d.pages.tokens.Token(signed(reader, hidden))}, "reason": {"a test"},
	}
}

// Each role sees and does what it may, and is offered nothing else. A refusal names the role that is needed.
func TestRolesDecideViewsAndActions(t *testing.T) {
	t.Parallel()
	const message, list = "/message?producer=orders&id=1", "/messages?state=dead"
	for role := access.NoRole; role <= access.Admin; role++ {
		d := newDesk()
		status, page := d.ask(role, message, nil)
		if want := role >= access.Viewer; (status == http.StatusOK) != want || strings.Contains(page, "orders") != want {
			t.Errorf("%s sees the message: %d", role, status)
		}
		for _, secret := range []string{"the body", "the header", "tenant"} {
			if strings.Contains(page, secret) != (role >= access.Reader) {
				t.Errorf("%s sees %q:\n%s", role, secret, page)
			}
		}
		_, listed := d.ask(role, list, nil)
		for action, least := range map[string]access.Role{actRetry: access.Operator, actDiscard: access.Admin} {
			may := role >= least
			for _, page := range []string{page, listed} {
				if strings.Contains(page, `value="`+action+`"`) != may ||
					strings.Contains(page, "action="+action) && !may {
					t.Errorf("%s is offered %s, want %t:\n%s", role, action, may, page)
				}
			}
			selected := url.Values{"action": {action}, "state": {"dead"}, "name": {"orders/1"}}
			for path, form := range map[string]url.Values{
				"/change?" + selected.Encode(): nil, "/change": selected, "/change/do": d.form(role, action),
			} {
				refusals := len(d.refused)
				status, page := d.ask(role, path, form)
				if (status == http.StatusOK) != may || !may && status != http.StatusForbidden {
					t.Errorf("%s, %s %s: got %d:\n%s", role, action, path, status, page)
				}
				named := strings.Contains(page, "needs the role "+least.String()) || role == access.NoRole
				if !may && (len(d.refused) == refusals || !named) {
					t.Errorf("%s, %s %s: recorded %q:\n%s", role, action, path, d.refused, page)
				}
			}
		}
		if d.retried > 0 != (role >= access.Operator) || d.discarded > 0 != (role == access.Admin) {
			t.Errorf("%s retried %d and discarded %d", role, d.retried, d.discarded)
		}
	}
}

// A form is of its reader: an operator who is lured into sending an admin's form, or the reverse, changes nothing.
func TestFormOfAnotherReaderIsRefused(t *testing.T) {
	t.Parallel()
	d := newDesk()
	status, page := d.ask(access.Admin, "/change/do", d.form(access.Operator, actDiscard))
	if status != http.StatusForbidden || !strings.Contains(page, "Nothing was changed") || d.discarded > 0 {
		t.Errorf("got %d:\n%s", status, page)
	}
}

func TestReadOnlyHoldsForAdmins(t *testing.T) {
	t.Parallel()
	d := newDesk(func(c *Config) { c.ReadOnly = true })
	for _, action := range []string{actRetry, actDiscard} {
		if status, page := d.ask(access.Admin, "/change/do", d.form(access.Admin, action)); status != http.StatusForbidden ||
			!strings.Contains(page, "read-only") {
			t.Errorf("got %d:\n%s", status, page)
		}
	}
	if d.retried+d.discarded > 0 {
		t.Error("a message was changed")
	}
}

func TestHiddenBodiesAreShownToNobody(t *testing.T) {
	t.Parallel()
	d := newDesk(func(c *Config) { c.HideBodies = true })
	_, page := d.ask(access.Admin, "/message?producer=orders&id=1", nil)
	for _, secret := range []string{"the body", "the header"} {
		if strings.Contains(page, secret) {
			t.Errorf("an admin sees %q", secret)
		}
	}
	if !strings.Contains(page, "http.bodies is false") {
		t.Errorf("the page does not say why:\n%s", page)
	}
}

func TestPagesNameTheirReader(t *testing.T) {
	t.Parallel()
	const path, notice = "/messages", "Everyone may do everything here"
	d := newDesk(func(c *Config) { c.Notice, c.LogsIn = notice, true })
	const (
		name, role    = "&lt;b&gt;anna", `<span class="mark">viewer</span>`
		logOut, logIn = `action="/logout"`, `href="/login"`
	)
	for kind, want := range map[access.Kind][]string{
		access.Token: {notice, name, role, logOut}, access.Proxy: {notice, name, role}, access.Anonymous: {notice, logIn},
	} {
		who := access.Identity{Kind: kind, Name: "<b>anna", Role: access.Viewer}
		r := httptest.NewRequest(http.MethodGet, path, nil)
		w := httptest.NewRecorder()
		d.mux.ServeHTTP(w, r.WithContext(access.With(r.Context(), who)))
		page := w.Body.String()
		for _, text := range []string{notice, name, role, logOut, logIn} {
			if strings.Contains(page, text) != slices.Contains(want, text) {
				t.Errorf("%s: %s is on the page, want %t:\n%s", kind, text, slices.Contains(want, text), page)
			}
		}
		if w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("the page may be stored: %v", w.Header())
		}
	}
}
