package main

import "testing"

// An order that a database would refuse is the client's mistake: 400, no alert, and the key stays usable.
func TestItemsFitEveryDatabase(t *testing.T) {
	t.Parallel()
	for item, valid := range map[string]bool{
		"book": true, "": false, "bo\x00ok": false, "😀": false, "a second painting": true,
	} {
		if o := (order{ID: "1001", Item: item, Quantity: 1}); o.valid() != valid {
			t.Errorf("item %q: valid is %v", item, !valid)
		}
	}
}
