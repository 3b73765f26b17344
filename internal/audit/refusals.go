package audit

import (
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/access"
)

const (
	// joinFor is how long equal refusals are joined to one record.
	joinFor = 10 * time.Second
	// maxCallers bounds the distinct refusals of that time. The log then gets about twenty lines a second at most.
	maxCallers = 100
)

// refusalKey is what equal refusals have in common. An attacker chooses names of producers and causes, so these are
// not among them.
type refusalKey struct {
	by      string
	kind    access.Kind
	from    string
	via     Via
	action  Action
	refusal Refusal
}

// refusals joins equal refusals. The zero value is ready for use.
type refusals struct {
	mu sync.Mutex
	// joined has the refusals since the last record, by what they have in common. A Count of zero: none since.
	joined map[refusalKey]Record
	// others are the refusals of more callers than maxCallers.
	others Record
}

// add takes a refusal, and returns true when the refusal is the first of its kind: a record is due at once.
func (j *refusals) add(r Record) (first bool) {
	key := refusalKey{r.By, r.Kind, r.From, r.Via, r.Action, r.Refusal}
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
			j.joined = map[refusalKey]Record{}
		}
		j.joined[key] = Record{}
		return true
	}
	return false
}

// join adds a refusal to earlier ones.
func join(earlier, r Record) Record {
	if earlier.Count > 0 {
		r.Count += earlier.Count
		r.Until, r.Time = r.Time, earlier.Time
	}
	return r
}

// take returns the records of the refusals that were joined. A caller without a refusal since the last take is
// forgotten.
func (j *refusals) take() (due []Record) {
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
		due = append(due, Record{
			Time: o.Time, Until: o.Until, Action: "calls of other callers", Count: o.Count, Result: Refused,
			Cause: "too many callers were refused to keep a record of each; the last cause is: " + o.Cause,
		})
		j.others = Record{}
	}
	return due
}
