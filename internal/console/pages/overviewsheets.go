package pages

import (
	"cmp"
	"net/http"
	"slices"
)

// troubledFirst sorts rows by their trouble, the worst first.
func troubledFirst[R any](rows []R, trouble func(R) int) []R {
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b R) int { return cmp.Compare(trouble(b), trouble(a)) })
	return rows
}

// rank is the place of trouble in an order: the higher, the worse.
func rank(bad, warn bool) int {
	switch {
	case bad:
		return 2
	case warn:
		return 1
	}
	return 0
}

func producerSheet(r *http.Request, lines []producerLine) sheet[producerLine] {
	trouble := func(p producerLine) int { return rank(p.Paused > 0, p.Down) }
	return newSheet(r, "producers", troubledFirst(lines, trouble), []column[producerLine]{
		{"name", "producer", false, func(a, b producerLine) int { return cmp.Compare(a.Name, b.Name) }},
		{"", "circuit", false, nil},
		{"in", "in/s", true, func(a, b producerLine) int { return cmp.Compare(b.Rates.In, a.Rates.In) }},
		{"out", "out/s", true, func(a, b producerLine) int { return cmp.Compare(b.Rates.Out, a.Rates.Out) }},
		{"answer", "last answer", false, func(a, b producerLine) int { return a.AnsweredAt.Compare(b.AnsweredAt) }},
	})
}

func exchangeSheet(r *http.Request, lines []exchangeLine) sheet[exchangeLine] {
	trouble := func(e exchangeLine) int { return rank(e.Down, !e.FailedAt.IsZero()) }
	return newSheet(r, "exchanges", troubledFirst(lines, trouble), []column[exchangeLine]{
		{"name", "exchange", false, func(a, b exchangeLine) int {
			return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Broker, b.Broker))
		}},
		{"out", "out/s", true, func(a, b exchangeLine) int { return cmp.Compare(b.Rates.Out, a.Rates.Out) }},
		{"acked", "acknowledged", true, func(a, b exchangeLine) int { return cmp.Compare(b.Acked(), a.Acked()) }},
		{"refused", "refused", true, func(a, b exchangeLine) int { return cmp.Compare(b.Failed(), a.Failed()) }},
		{"error", "last error", false, func(a, b exchangeLine) int { return b.FailedAt.Compare(a.FailedAt) }},
	})
}

func coordinatorSheet(r *http.Request, lines []coordinatorLine) sheet[coordinatorLine] {
	trouble := func(c coordinatorLine) int { return rank(c.State == "missing", c.State == "unknown") }
	return newSheet(r, "coordinators", troubledFirst(lines, trouble), []column[coordinatorLine]{
		{"name", "coordinator", false, func(a, b coordinatorLine) int { return cmp.Compare(a.Instance, b.Instance) }},
		{"", "state", false, nil},
		{"leases", "leases", true, func(a, b coordinatorLine) int { return cmp.Compare(b.Leases, a.Leases) }},
		{"started", "started", false, func(a, b coordinatorLine) int { return b.StartedAt.Compare(a.StartedAt) }},
	})
}
