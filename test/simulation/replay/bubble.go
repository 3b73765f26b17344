package replay

import _ "unsafe" // for go:linkname

// bubbleSeed is the runtime's variable of the overlay. Without the overlay it is a variable of this package, and 0.
//
//go:linkname bubbleSeed runtime.bubbleSeed
var bubbleSeed uint64

// SeedBubbles has the order of everything in the bubbles that begin from now on depend on a number, and returns true.
// In a program that was built without the overlay it does nothing and returns false.
func SeedBubbles(seed uint64) bool {
	if bubbleSeed == 0 {
		return false
	}
	bubbleSeed = seed | 1<<63 // 0 says that there is no overlay
	return true
}
