package sql

import (
	"math/bits"
	"slices"
	"strings"
	"sync"

	"github.com/msghandler/msghandler/producer/marker"
)

// maxInList is the most ids in one statement.
const maxInList = 512

// parallelPlants is how many ids are tried at once after a joint insert had to wait: enough to get past waiting ids,
// few enough to leave a connection pool to the business.
const parallelPlants = 8

// usable drops ids that cannot be in the table, and duplicates.
func usable(ids []string) []string {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return len(id) > maxID })
	slices.Sort(ids)
	return slices.Compact(ids)
}

// without drops ids that have a verdict, and ids that cannot have a verdict.
func without(ids []string, standing map[string]marker.Verdict) []string {
	return slices.DeleteFunc(usable(ids), func(id string) bool { return standing[id].Definite() })
}

// padded repeats the last id until the number of ids is a power of two. So few statements differ, and a driver that
// caches prepared statements caches few.
func padded(ids []string) []string {
	if len(ids) == 0 {
		return nil
	}
	n := 1 << bits.Len(uint(len(ids)-1))
	return append(slices.Clone(ids), slices.Repeat(ids[len(ids)-1:], n-len(ids))...)
}

// inList is the inside of IN (...), with its parameters.
func (s *Store) inList(ids []string) (list string, args []any) {
	ids = padded(ids)
	args = make([]any, len(ids))
	for i, id := range ids {
		args[i] = s.form.key(id)
	}
	return strings.TrimSuffix(strings.Repeat("?,", len(ids)), ","), args
}

// eachOf calls for every id, some in parallel, and returns the first error; after an error no call begins.
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
