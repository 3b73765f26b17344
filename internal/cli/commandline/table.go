package commandline

import (
	"bytes"
	"slices"
	"strings"
	"unicode"

	"github.com/msghandler/msghandler/internal/escape"
)

// Screen is what output is fitted to. The zero Screen is no terminal: nothing is cut, wrapped or coloured.
type Screen struct {
	// Width and Height are the columns and lines of the terminal; 0: any number.
	Width, Height int
	Color         bool
}

const (
	// columnGap is the space between two columns.
	columnGap = 3
	// leastText is how many characters the last column has at least: the last column says why.
	leastText = 32
	// leastName is how many characters the other columns have at least.
	leastName = 8
	// below is how far the last column is indented where it stands below its row.
	below = 4
)

// expendable are the columns that a narrow terminal loses, the first first, by their heads. Names, which people copy,
// and the last column, which says why, are never lost.
var expendable = []string{
	"NEWEST", "CREATED", "ROUTING KEY", "RETRIES", "ATTEMPTS", "COPIES", "TOOK", "DUE", "OLDEST", "FROM", "EXCHANGE",
	"KIND", "VERSION", "STARTED", "RESTARTS", "CONSUMER",
}

// Rows is how many rows of the terminal a line takes.
func (c Screen) Rows(line string) int {
	if c.Width <= 0 {
		return 1
	}
	return max(1, (columnsOf(toneSwitch.ReplaceAllString(line, ""))+c.Width-1)/c.Width)
}

// Table lays rows out in columns, whose last is wrapped at the edge of a terminal. The first row may be a head, in
// capitals. An empty row ends a table, and the next row begins another.
func (c Screen) Table(rows [][]string) []byte {
	var b bytes.Buffer
	for len(rows) > 0 {
		end := slices.IndexFunc(rows, func(row []string) bool { return len(row) == 0 })
		if end == 0 {
			b.WriteByte('\n')
			rows = rows[1:]
			continue
		}
		if end < 0 {
			end = len(rows)
		}
		c.block(&b, rows[:end])
		rows = rows[end:]
	}
	return b.Bytes()
}

// block lays out a table.
func (c Screen) block(b *bytes.Buffer, rows [][]string) {
	cells, columns := make([][]string, len(rows)), 0
	for i, row := range rows {
		for _, cell := range row {
			cells[i] = append(cells[i], escape.Line(cell))
		}
		columns = max(columns, len(row))
	}
	headed := hasHead(cells)
	for headed && c.Width > 0 && !c.holds(cells, columns) {
		lost := slices.IndexFunc(expendable, func(head string) bool { return slices.Contains(cells[0][:columns-1], head) })
		if lost < 0 {
			break
		}
		at := slices.Index(cells[0], expendable[lost])
		for i, row := range cells {
			if len(row) > at {
				cells[i] = slices.Delete(row, at, at+1)
			}
		}
		columns--
	}
	widths, under := c.within(widthsOf(cells, columns)), c.Width > 0 && !c.holds(cells, columns)
	for i, row := range cells {
		var tones []string
		if c.Color {
			tones = tonesOf(row, cells[0], headed, i)
		}
		c.row(b, row, widths, tones, under && len(row) == columns && columns > 1)
	}
}

// hasHead says whether the first row is a head: a row of capitals.
func hasHead(rows [][]string) bool {
	return len(rows[0]) > 1 && !slices.ContainsFunc(rows[0], func(cell string) bool {
		return !strings.ContainsFunc(cell, unicode.IsUpper) || strings.ContainsFunc(cell, unicode.IsLower)
	})
}

// widthsOf are the widths of all columns except the last of each row, which needs no alignment.
func widthsOf(rows [][]string, columns int) []int {
	widths := make([]int, columns)
	for _, row := range rows {
		for i, cell := range row[:len(row)-1] {
			widths[i] = max(widths[i], columnsOf(cell))
		}
	}
	return widths
}

// within bounds the widest column, so that no row is padded beyond the edge of the terminal. A longer name moves the
// rest of its own row.
func (c Screen) within(widths []int) []int {
	last := len(widths) - 1
	over := indentOf(widths[:last]) - columnGap - c.Width
	if c.Width > 0 && over > 0 {
		widest := slices.Index(widths, slices.Max(widths[:last]))
		widths[widest] = max(widths[widest]-over, leastName)
	}
	return widths
}

// holds says whether the last column has room beside the others.
func (c Screen) holds(rows [][]string, columns int) bool {
	longest := 0
	for _, row := range rows {
		if len(row) == columns {
			longest = max(longest, columnsOf(row[columns-1]))
		}
	}
	return indentOf(widthsOf(rows, columns)[:columns-1])+min(longest, leastText) <= c.Width
}

// indentOf is where the column behind these columns begins.
func indentOf(widths []int) (indent int) {
	for _, width := range widths {
		indent += width + columnGap
	}
	return indent
}

// row writes a row. Its last cell stands under the others where it has no room beside them.
func (c Screen) row(b *bytes.Buffer, row []string, widths []int, tones []string, under bool) {
	paint := func(i int, text string) string {
		if i >= len(tones) || tones[i] == "" || text == "" {
			return text
		}
		return tones[i] + text + plain
	}
	words := slices.DeleteFunc(slices.Clone(row[:len(row)-1]), func(cell string) bool { return cell == "" })
	if under && row[0] == "" && len(words) < 2 { // a row such as do:, which explains the row above
		word := strings.Join(words, "")
		row = []string{strings.TrimRight(strings.Repeat(" ", below)+word, " "), row[len(row)-1]}
		widths, tones, under = []int{max(below, columnsOf(row[0])+1) - columnGap}, nil, false
	}
	last, gap := len(row)-1, 0
	for i, cell := range row[:last] {
		if cell != "" {
			b.WriteString(strings.Repeat(" ", gap) + paint(i, cell))
			gap = 0
		}
		gap = max(1, gap+widths[i]-columnsOf(cell)+columnGap)
	}
	indent := indentOf(widths[:last])
	if under {
		indent, gap = below, below
		if row[last] != "" {
			b.WriteByte('\n')
		}
	}
	for n, line := range wrap(row[last], c.Width-indent, c.Width > 0) {
		if n > 0 {
			b.WriteByte('\n')
			gap = indent
		}
		if line != "" {
			b.WriteString(strings.Repeat(" ", gap) + paint(last, line))
		}
	}
	b.WriteByte('\n')
}

// wrap breaks a text at spaces, and between wide runes, whose scripts have no spaces. A longer word is left whole, so
// that people can copy it.
func wrap(text string, room int, narrow bool) (lines []string) {
	for room = max(room, 1); narrow; {
		at, used := 0, 0
		for i, r := range text {
			if used > room && at > 0 {
				break
			}
			if i > 0 && (r == ' ' || isWide(r)) && (at == 0 || used <= room) {
				at = i
			}
			used += columnsOfRune(r)
		}
		if used <= room || at == 0 {
			break
		}
		lines = append(lines, strings.TrimRight(text[:at], " "))
		text = strings.TrimLeft(text[at:], " ")
	}
	return append(lines, text)
}
