package faults

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/msghandler/msghandler/producer/marker"
)

// journal is the durable memory of a producer in a process of its own: a file of lines. Where the producer has no
// other database, the line of a transaction's end is its business data. A line that was being written when the
// process died does not count, and its event did not happen.
type journal struct {
	mu    sync.Mutex
	file  *os.File
	fates map[string]Fate
	lines []entry
}

// entry is one line.
type entry struct{ what, id, more string }

// The kinds of lines.
const (
	lineSending    = "sending"
	lineAccepted   = "accepted"
	lineEnded      = "ended" // as committed or rolled back
	lineSaid       = "said"
	lineSurprised  = "surprised"
	lineSettled    = "settled"
	wordCommitted  = "committed"
	wordRolledBack = "rolled-back"
)

var fateOf = map[string]Fate{wordCommitted: Committed, wordRolledBack: RolledBack}

func wordOf(fate Fate) string {
	if fate == Committed {
		return wordCommitted
	}
	return wordRolledBack
}

// readJournal reads whole lines, and says how many bytes they are.
func readJournal(path string) (lines []entry, size int64, err error) {
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil, 0, nil
	}
	data = data[:bytes.LastIndexByte(data, '\n')+1]
	for line := range strings.Lines(string(data)) {
		what, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		id, more, _ := strings.Cut(rest, " ")
		lines = append(lines, entry{what, id, more})
	}
	return lines, int64(len(data)), err
}

// openJournal recovers the lines of an earlier process.
func openJournal(path string) (*journal, error) {
	lines, size, err := readJournal(path)
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	j := &journal{file: file, fates: map[string]Fate{}, lines: lines}
	for _, l := range lines {
		if l.what == lineEnded {
			j.fates[l.id] = fateOf[l.more]
		}
	}
	return j, file.Truncate(size)
}

// note writes a line. A process that cannot write ends.
func (j *journal) note(what, id, more string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.write(what, id, more)
}

func (j *journal) write(what, id, more string) {
	line := strings.TrimRight(strings.Join([]string{what, id, more}, " "), " ") + "\n"
	if _, err := j.file.WriteString(line); err != nil {
		panic(err)
	}
}

func (j *journal) fate(id string) Fate {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.fates[id]
}

// end ends a transaction, unless the transaction has ended before, and returns the end that counts. inside is called
// when half of the line is written.
func (j *journal) end(id string, fate Fate, inside func()) Fate {
	j.mu.Lock()
	defer j.mu.Unlock()
	if ended := j.fates[id]; ended != Undecided {
		return ended
	}
	if _, err := fmt.Fprint(j.file, lineEnded, " ", id); err != nil {
		panic(err)
	}
	inside()
	if _, err := fmt.Fprint(j.file, " ", wordOf(fate), "\n"); err != nil {
		panic(err)
	}
	if err := j.file.Sync(); err != nil {
		panic(err)
	}
	j.fates[id] = fate
	return fate
}

// ended ends a transaction, or returns its earlier end.
func (j *journal) ended(id string, fate Fate) Fate { return j.end(id, fate, func() {}) }

func verdictOf(fate Fate) marker.Verdict {
	return map[Fate]marker.Verdict{
		Undecided: marker.Unknown, Committed: marker.Committed, RolledBack: marker.RolledBack,
	}[fate]
}
