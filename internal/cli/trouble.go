package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// troubleGroup is messages in trouble that have producer, exchange, state and cause in common.
type troubleGroup struct {
	state, exchange, cause string
	count                  int64
	// estimated says that not all messages were read.
	estimated bool
	// message is the oldest of those that were read.
	message string
	oldest  *timestamppb.Timestamp
}

// sortTrouble sorts groups, the largest first.
func sortTrouble(groups []*troubleGroup) {
	slices.SortStableFunc(groups, func(a, b *troubleGroup) int { return cmp.Compare(b.count, a.count) })
}

// size is the count of the group with a mark where the count is not exact.
func (g *troubleGroup) size() string {
	size := strconv.FormatInt(g.count, 10)
	if g.estimated {
		return "~" + size
	}
	return size
}

// troubleColumns are the columns of the groups, with the order in which a narrow screen loses them: 0 is never lost.
var troubleColumns = []struct {
	head string
	lost int
}{{"COUNT", 0}, {"STATE", 3}, {"EXCHANGE", 2}, {"OLDEST", 1}, {"MESSAGE", 0}, {"CAUSE", 0}}

const (
	// lostColumns is how many columns a narrow screen may lose.
	lostColumns = 3
	// columnGap is the space between two columns of a table.
	columnGap = 3
	// minCause is how many characters of the cause a screen of 80 columns has at least.
	minCause = 32
	// widestName bounds the columns EXCHANGE and MESSAGE on a screen with an edge.
	widestName = 26
)

// troubleRows are the rows of the groups, fitted into a width; 0 means any width. The cause is never lost: other
// columns are lost first.
func troubleRows(groups []*troubleGroup, width int, now time.Time) [][]string {
	if len(groups) == 0 {
		return [][]string{{"no messages"}}
	}
	head := make([]string, len(troubleColumns))
	for i, c := range troubleColumns {
		head[i] = c.head
	}
	rows := [][]string{head}
	for _, g := range groups {
		rows = append(rows, []string{
			g.size(), g.state, cmp.Or(g.exchange, halfmsg.DefaultExchange), ageOf(g.oldest, now), g.message,
			cmp.Or(g.cause, halfmsg.NoCause),
		})
	}
	return fit(rows, width)
}

// fit cuts long names, leaves out columns until the cause has room, and cuts the cause.
func fit(rows [][]string, width int) [][]string {
	last := len(troubleColumns) - 1
	if width == 0 {
		for _, row := range rows[1:] {
			row[last] = shorten(row[last])
		}
		return rows
	}
	var kept []int
	for i := range troubleColumns {
		kept = append(kept, i)
		for _, row := range rows[1:] {
			if i < last {
				row[i] = middleCut(row[i], widestName)
			}
		}
	}
	room := func() int { return width - widthOf(rows, kept[:len(kept)-1]) }
	for lose := 1; room() < minCause && lose <= lostColumns; lose++ {
		kept = slices.DeleteFunc(kept, func(i int) bool { return troubleColumns[i].lost == lose })
	}
	fitted := make([][]string, len(rows))
	for n, row := range rows {
		for _, i := range kept {
			cell := row[i]
			if i == last && n > 0 {
				cell = middleCut(cell, max(room(), len(troubleColumns[last].head)))
			}
			fitted[n] = append(fitted[n], cell)
		}
	}
	return fitted
}

// widthOf is the width of columns with the gap behind each.
func widthOf(rows [][]string, columns []int) (width int) {
	for _, i := range columns {
		widest := 0
		for _, row := range rows {
			widest = max(widest, utf8.RuneCountInString(row[i]))
		}
		width += widest + columnGap
	}
	return width
}

// middleCut leaves out the middle of a text that has more characters than fit.
func middleCut(text string, most int) string {
	const gap = "..."
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	left := (most - len(gap) + 1) / 2
	right := most - len(gap) - left
	return strings.TrimRight(string(runes[:left]), " ") + gap + string(runes[len(runes)-right:])
}

// moreGroups says how many groups have no row: hidden by --rows, and left out by the coordinator.
func moreGroups(hidden, left int) string {
	var lines string
	if hidden > 0 {
		lines = fmt.Sprintf("and %d more groups; raise --rows\n", hidden)
	}
	if left > 0 {
		lines += fmt.Sprintf("the coordinator leaves out %d smaller groups\n", left)
	}
	return lines
}
