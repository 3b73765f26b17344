// Package files has the rules for files that people write beside the configuration: a changed file is read again, and a
// file with secrets is for its owner.
package files

import (
	"sync"
	"time"
)

// lookInterval is how long a check of the files is valid, so that many simultaneous calls read the files once.
const lookInterval = time.Second

// Source says how a value is made of files.
type Source[C comparable, T any] struct {
	// Read returns the content of the files, and Make the value of a content.
	Read func() (C, error)
	Make func(C) (T, error)
	// Reloaded is called when a new value is in use, Failed once for each new reason why there is none.
	Reloaded func()
	Failed   func(error)
}

// Watched holds a value made of files, and makes the value again when the files change. While the files cannot be read
// or are invalid, as between the replacements of two files, the value made before stays in use. A Watched is safe for
// concurrent use.
type Watched[C comparable, T any] struct {
	source Source[C, T]

	mu     sync.Mutex
	looked time.Time
	// last is the content of the last attempt, reported the last error that was passed to Failed.
	last     C
	reported string
	// unread says that the files could not be read at the last look.
	unread bool
	value  T
}

// Watch reads the files for the first time.
func Watch[C comparable, T any](source Source[C, T]) (w *Watched[C, T], err error) {
	w = &Watched[C, T]{source: source}
	if w.last, err = source.Read(); err != nil {
		return nil, err
	}
	if w.value, err = source.Make(w.last); err != nil {
		return nil, err
	}
	w.looked = time.Now()
	return w, nil
}

// Current gives the value, after a look at the files where the last look is a second ago.
func (w *Watched[C, T]) Current() T {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.looked) >= lookInterval {
		w.look()
		w.looked = time.Now()
	}
	return w.value
}

func (w *Watched[C, T]) look() {
	content, err := w.source.Read()
	if err == nil && w.unread {
		w.unread, w.reported = false, ""
	}
	if err == nil && content == w.last {
		return
	}
	w.unread = err != nil
	var value T
	if err == nil {
		w.last = content
		value, err = w.source.Make(content)
	}
	if err != nil {
		if w.reported != err.Error() {
			w.reported = err.Error()
			w.source.Failed(err)
		}
		return
	}
	w.value, w.reported = value, ""
	w.source.Reloaded()
}
