package audit

import (
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/access"
)

const (
	// joinFor is how long equal records are joined to one.
	joinFor = 10 * time.Second
	// maxCallers bounds the distinct records of that time. The log then gets about ten lines a second of each stream at
	// most, and the first ones at once.
	maxCallers = 100
)

// joinKey is what equal records have in common. An attacker chooses names of producers and causes, so these are
// not among them.
type joinKey struct {
	by      string
	kind    access.Kind
	from    string
	via     Via
	action  Action
	refusal Refusal
}

// joiner joins equal records of a stream. The zero value is ready for use.
type joiner struct {
	mu sync.Mutex
	// joined has what came since the last record, by what equal records have in common. A Count of zero: none since.
	joined map[joinKey]Record
	// others are of more callers than maxCallers.
	others Record
}

// add takes a record, and returns true when it is the first of its kind: the record is due at once.
func (j *joiner) add(r Record) (first bool) {
	key := joinKey{r.By, r.Kind, r.From, r.Via, r.Action, r.Refusal}
	j.mu.Lock()
	defer j.mu.Unlock()
	known, is := j.joined[key]
	switch {
	case is:
		j.joined[key] = join(known, r)
	case len(j.joined) >= maxCallers:
		j.others = join(j.others, r)
	default:
		if j.joined == nil {
			j.joined = map[joinKey]Record{}
		}
		j.joined[key] = Record{}
		return true
	}
	return false
}

// join adds a record to earlier ones.
func join(earlier, r Record) Record {
	if earlier.Count > 0 {
		r.Count += earlier.Count
		r.Until, r.Time = r.Time, earlier.Time
	}
	return r
}

// takeDueRecords returns the records that were joined. A caller without a record since the last takeDueRecords is
// forgotten.
func (j *joiner) takeDueRecords() (due []Record) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for key, r := range j.joined {
		if r.Count == 0 {
			delete(j.joined, key)
			continue
		}
		due = append(due, r)
		j.joined[key] = Record{}
	}
	if o := j.others; o.Count > 0 {
		r := Record{
			Time: o.Time, Until: o.Until, Action: o.Action, Count: o.Count, Result: o.Result, Refusal: o.Refusal, role: o.role,
			Cause: "there were too many callers to keep a record of each",
		}
		if r.Result == Refused {
			r.Action, r.Cause = "calls of other callers", r.Cause+"; the last cause is: "+o.Cause
		}
		due = append(due, r)
		j.others = Record{}
	}
	return due
}
