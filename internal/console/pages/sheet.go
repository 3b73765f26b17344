package pages

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
)

// sheetRows is how many rows a page of a sheet has.
const sheetRows = 10

// sheet is a table that the address of its page sorts and turns: NAME.by is a column, and NAME.from is the first row.
type sheet[R any] struct {
	Heads []head
	Rows  []R
	// From and Until number the rows that are shown, of Total.
	From, Until, Total int
	// First and Next lead to other pages of the table; empty: there is none.
	First, Next string
}

// column is a column of a sheet. Without an order the column sorts nothing.
type column[R any] struct {
	key, text string
	number    bool
	order     func(a, b R) int
}

// head is the head of a column. Link sorts by the column, and leads back to the order of trouble where Sorted.
type head struct {
	Text, Link     string
	Number, Sorted bool
}

// newSheet shows the rows that a request asks for. The rows are in the order of trouble: the worst come first.
func newSheet[R any](r *http.Request, name string, rows []R, columns []column[R]) sheet[R] {
	by, from := name+".by", name+".from"
	link := func(key, value string) string {
		query := r.URL.Query()
		for _, of := range []string{from, key} {
			query.Del(of)
		}
		if value != "" {
			query.Set(key, value)
		}
		return (&url.URL{Path: r.URL.Path, RawQuery: query.Encode(), Fragment: name}).String()
	}
	s := sheet[R]{Total: len(rows)}
	for _, c := range columns {
		h := head{Text: c.text, Number: c.number}
		if c.order != nil {
			h.Sorted = r.FormValue(by) == c.key
			h.Link = link(by, c.key)
		}
		if h.Sorted {
			rows = slices.Clone(rows)
			slices.SortStableFunc(rows, c.order)
			h.Link = link(by, "")
		}
		s.Heads = append(s.Heads, h)
	}
	begin, err := strconv.Atoi(r.FormValue(from))
	if err != nil || begin < 0 || begin >= len(rows) {
		begin = 0
	}
	s.Rows = rows[begin:min(len(rows), begin+sheetRows)]
	s.From, s.Until = begin+1, begin+len(s.Rows)
	if begin > 0 {
		s.First = link(from, "")
	}
	if s.Until < s.Total {
		s.Next = link(from, strconv.Itoa(s.Until))
	}
	return s
}
