package sql

import (
	"math/bits"
	"slices"
	"strings"
	"sync"

	"github.com/msghandler/msghandler/producer/marker"
)

// maxInList is how many ids one statement names.
const maxInList = 512

// parallelPlants is how many ids are tried at once when each is tried by itself: enough to get through some that wait,
// few enough to leave a pool to the business.
const parallelPlants = 8

// usable leaves out ids that cannot be in the table, and says each once.
func usable(ids []string) []string {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return len(id) > maxID })
	slices.Sort(ids)
	return slices.Compact(ids)
}

// without leaves out the ids that have a verdict, and those that cannot have one.
func without(ids []string, standing map[string]marker.Verdict) []string {
	return slices.DeleteFunc(usable(ids), func(id string) bool { return standing[id].Definite() })
}

// padded repeats the last id until their number is a power of two. A list has few lengths then, and a driver that keeps
// prepared statements keeps a few.
func padded(ids []string) []string {
	if len(ids) == 0 {
		return nil
	}
	n := 1 << bits.Len(uint(len(ids)-1))
	return append(slices.Clone(ids), slices.Repeat(ids[len(ids)-1:], n-len(ids))...)
}

// inList is the inside of IN (...), with its parameters.
func inList(ids []string) (list string, args []any) {
	ids = padded(ids)
	args = make([]any, len(ids))
	for i, id := range ids {
		args[i] = []byte(id)
	}
	return strings.TrimSuffix(strings.Repeat("?,", len(ids)), ","), args
}

// eachOf calls for every id, some at a time, and returns the first error; after it no more are begun.
func eachOf(ids []string, call func(id string) error) error {
	var mu sync.Mutex
	var first error
	var workers sync.WaitGroup
	take := func() (id string, more bool) {
		mu.Lock()
		defer mu.Unlock()
		if first != nil || len(ids) == 0 {
			return "", false
		}
		id, ids = ids[0], ids[1:]
		return id, true
	}
	for range min(parallelPlants, len(ids)) {
		workers.Go(func() {
			for id, more := take(); more; id, more = take() {
				if err := call(id); err != nil {
					mu.Lock()
					first = err
					mu.Unlock()
				}
			}
		})
	}
	workers.Wait()
	return first
}
