package database

import (
	"path/filepath"
	"sync"
	"testing"
)

// A new file of SQLite becomes a WAL at the first connection. Two processes that start at once may both try that.
func TestNewFileIsOpenedTogether(t *testing.T) {
	t.Parallel()
	for range 50 {
		name := "sqlite:" + filepath.Join(t.TempDir(), "shop.db")
		var opening sync.WaitGroup
		for range 3 {
			opening.Go(func() {
				db, err := Open(t.Context(), name)
				if err == nil {
					err = db.Close()
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		opening.Wait()
	}
}
