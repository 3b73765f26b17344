package pages

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/msghandler/msghandler/internal/peerstats"
)

// A table of a hundred producers shows ten, those in trouble first, and its address sorts and turns it alone.
func TestSheetsSortAndTurn(t *testing.T) {
	t.Parallel()
	var lines []producerLine
	for i := range 101 {
		p := peerstats.Producer{Name: fmt.Sprintf("p%03d", 100-i), Rates: peerstats.Rates{In: float64(i)}}
		lines = append(lines, producerLine{p, i == 50})
	}
	lines[70].Paused = 1
	for address, want := range map[string]string{
		"/?range=1d":           "p030 p050 1-10 of 101, first '', next /?producers.from=10&range=1d#producers",
		"/?producers.by=name":  "p000 p001 1-10 of 101, first '', next /?producers.by=name&producers.from=10#producers",
		"/?producers.by=in":    "p000 p001 1-10 of 101, first '', next /?producers.by=in&producers.from=10#producers",
		"/?producers.from=100": "p000  101-101 of 101, first '/#producers', next ",
		"/?producers.from=101": "p030 p050 1-10 of 101, first '', next /?producers.from=10#producers",
		"/?producers.from=x":   "p030 p050 1-10 of 101, first '', next /?producers.from=10#producers",
		"/?exchanges.by=name":  "p030 p050 1-10 of 101, first '', next /?exchanges.by=name&producers.from=10#producers",
		"/?producers.by=none":  "p030 p050 1-10 of 101, first '', next /?producers.by=none&producers.from=10#producers",
	} {
		s := producerSheet(httptest.NewRequest(http.MethodGet, address, nil), lines)
		second := ""
		if len(s.Rows) > 1 {
			second = s.Rows[1].Name
		}
		got := fmt.Sprintf("%s %s %d-%d of %d, first '%s', next %s", s.Rows[0].Name, second, s.From, s.Until, s.Total,
			s.First, s.Next)
		if got != want {
			t.Errorf("%s shows\n%s, want\n%s", address, got, want)
		}
	}
	sorted := producerSheet(httptest.NewRequest(http.MethodGet, "/?producers.by=in&producers.from=20", nil), lines)
	if h := sorted.Heads[2]; !h.Sorted || h.Link != "/#producers" || sorted.Heads[1].Link != "" ||
		sorted.Heads[0].Link != "/?producers.by=name#producers" {
		t.Errorf("the heads are %+v", sorted.Heads)
	}
}
