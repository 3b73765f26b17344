package certs

import (
	"sync"
	"time"
)

// lookInterval is how long a check of the files is valid, so that many simultaneous connections read the files once.
const lookInterval = time.Second

// reloader holds a value made of files, and makes the value again when the files change. While the files cannot be read
// or are invalid, as between the replacements of two files, the value made before stays in use. A reloader is safe for
// concurrent use.
type reloader[C comparable, T any] struct {
	read func() (C, error)
	make func(C) (T, error)
	// reloaded is called when a new value is in use, failed once for each new reason why there is none.
	reloaded func()
	failed   func(error)

	mu     sync.Mutex
	looked time.Time
	// last is the content of the last attempt, reported the last error that was passed to failed.
	last     C
	reported string
	value    T
}

// open reads the files for the first time.
func (r *reloader[C, T]) open() (err error) {
	if r.last, err = r.read(); err != nil {
		return err
	}
	r.value, err = r.make(r.last)
	r.looked = time.Now()
	return err
}

// current gives the value, after a look at the files where the last look is lookInterval ago.
func (r *reloader[C, T]) current() T {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.looked) >= lookInterval {
		r.look()
		r.looked = time.Now()
	}
	return r.value
}

func (r *reloader[C, T]) look() {
	content, err := r.read()
	if err == nil && content == r.last {
		return
	}
	var value T
	if err == nil {
		r.last = content
		value, err = r.make(content)
	}
	if err != nil {
		if r.reported != err.Error() {
			r.reported = err.Error()
			r.failed(err)
		}
		return
	}
	r.value, r.reported = value, ""
	r.reloaded()
}
