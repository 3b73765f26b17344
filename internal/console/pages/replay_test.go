package pages

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/operate"
)

// replayForm is a signed form of a reader.
func (d *desk) replayForm(role access.Role) url.Values {
	hidden := replaySelection{
		Filter: finishedFilter{operate.FinishedText{Producer: "orders"}}, At: time.Now(),
		tally: tally{Count: 1, Counted: time.Now()},
	}.text()
	reader := as(role, httptest.NewRequest(http.MethodPost, "/replay/do", nil))
	return url.Values{
		"selection": {hidden}, "token": {d.pages.tokens.Token(signed(reader, hidden))}, "reason": {"a test"},
	}
}

func TestRolesDecideAboutReplays(t *testing.T) {
	t.Parallel()
	for role := access.NoRole; role <= access.Admin; role++ {
		d := newDesk()
		want := role >= access.Operator
		for path, form := range map[string]url.Values{
			"/replay": {"producer": {"orders"}}, "/replay/do": d.replayForm(role),
		} {
			if status, page := d.ask(role, path, form); (status == http.StatusOK) != want {
				t.Errorf("%s, %s: got %d:\n%s", role, path, status, page)
			}
		}
		if (d.replayed == 1) != want {
			t.Errorf("%s replayed %d times", role, d.replayed)
		}
	}
}

func TestForgedReplayFormsReplayNothing(t *testing.T) {
	t.Parallel()
	d := newDesk()
	changed, empty := d.replayForm(access.Admin), d.replayForm(access.Admin)
	changed.Set("selection", changed.Get("selection")+"&suffix=-again")
	empty.Set("reason", " ")
	for name, form := range map[string]url.Values{
		"of another reader": d.replayForm(access.Operator), "changed": changed, "no reason": empty,
	} {
		if status, page := d.ask(access.Admin, "/replay/do", form); status == http.StatusOK || d.replayed > 0 {
			t.Errorf("%s: got %d:\n%s", name, status, page)
		}
	}
	once := d.replayForm(access.Admin)
	for _, want := range []int{http.StatusOK, http.StatusForbidden} {
		if status, _ := d.ask(access.Admin, "/replay/do", once); status != want || d.replayed != 1 {
			t.Errorf("got %d, want %d; replayed %d times", status, want, d.replayed)
		}
	}
}

func TestReplayLeavesOutLaterMessages(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_800_000_000_000)
	for _, until := range []string{"", "2100-01-01"} {
		s := replaySelection{Filter: finishedFilter{operate.FinishedText{Producer: "orders", Until: until}}, At: at}
		request, err := s.request(false, 1, "")
		if got := request.GetSelection().GetFilter().GetUntil().AsTime(); err != nil || !got.Equal(at) {
			t.Errorf("until %q: the messages ended until %s, %v", until, got, err)
		}
	}
}

// The rest begins behind the replayed messages, and without messages that ended since the first count.
func TestReplayGoesOnBehindFirstPart(t *testing.T) {
	t.Parallel()
	d := newDesk()
	d.next = "behind"
	_, page := d.ask(access.Operator, "/replay/do", d.replayForm(access.Operator))
	rest := url.Values{}
	hidden := regexp.MustCompile(`type="hidden" name="([a-z]+)" value="([^"]*)"`)
	for _, field := range hidden.FindAllStringSubmatch(page, -1) {
		rest.Set(field[1], field[2])
	}
	if rest.Get("after") != "behind" || rest.Get("producer") != "orders" {
		t.Fatalf("the rest is %v:\n%s", rest, page)
	}
	if status, page := d.ask(access.Operator, "/replay", rest); status != http.StatusOK {
		t.Fatalf("got %d:\n%s", status, page)
	}
	first, second := d.replays[0], d.replays[1]
	if !second.GetDryRun() || second.GetPageToken() != "behind" ||
		second.GetSelection().GetFilter().GetUntil().AsTime() != first.GetSelection().GetFilter().GetUntil().AsTime() {
		t.Errorf("the first request is %v, and the request for the rest %v", first, second)
	}
}
