package delivery

import "github.com/msghandler/msghandler/internal/ground/lifecycle"

// Isolate runs do over items. When do panics, the items are halved and each half is tried alone, down to the poison
// item, which is handed to setAside. So do may get an item more than once.
func Isolate[T any](items []T, do func([]T), setAside func(T, *lifecycle.PanicError)) {
	if len(items) == 0 {
		return
	}
	failure := lifecycle.Recovered(func() { do(items) })
	if failure == nil {
		return
	}
	if len(items) == 1 {
		setAside(items[0], failure)
		return
	}
	half := len(items) / 2
	Isolate(items[:half], do, setAside)
	Isolate(items[half:], do, setAside)
}
