package pages

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/access"
)

// tray has a dead letter, and counts its changes.
type tray struct{ replayed, discarded int }

func (*tray) Queues(context.Context) []LetterQueue {
	return []LetterQueue{{Name: "payments", Queue: "payments.dead", Count: 3, Known: true}}
}

func (*tray) List(context.Context, LetterQuery) (LetterPage, error) {
	return LetterPage{Letters: []Letter{{Producer: "orders", ID: "1", FirstCause: hostileCause}}, Next: 100}, nil
}

const hostileCause = "<script>alert(1)</script>\u202e"

func (*tray) Get(context.Context, string, string) (Letter, error) {
	return Letter{
		Producer: "orders", ID: "1", Body: []byte("the body"), Headers: map[string]string{"tenant": "the header"},
	}, nil
}

func (*tray) Count(_ context.Context, c LetterChange) (LetterTally, error) {
	if c.Discard {
		return LetterTally{Count: 1}, nil
	}
	to := []LetterDestination{{Exchange: "orders", Letters: 1, Refused: "no such right"}}
	return LetterTally{Count: 1, Destinations: to}, nil
}

func (t *tray) Change(_ context.Context, c LetterChange) (LettersChanged, error) {
	if c.Discard {
		t.discarded++
	} else {
		t.replayed++
	}
	return LettersChanged{Done: 1}, nil
}

// letterDesk is a console in front of a tray.
func letterDesk(change ...func(*Config)) (*desk, *tray) {
	letters := &tray{}
	with := func(c *Config) { c.Letters = func(string) Letters { return letters } }
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
	d := newDesk(func(c *Config) { c.Letters = func(string) Letters { return noTray{} } })
	if _, page := d.ask(access.Viewer, "/letters", nil); !strings.Contains(page, "queue: payments.dead") {
		t.Errorf("the page is\n%s", page)
	}
}

type noTray struct{ Letters }

func (noTray) Queues(context.Context) []LetterQueue { return nil }
