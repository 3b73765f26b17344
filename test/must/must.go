// Package must ends a test at a step that failed and that the rest of the test needs.
package must

import "testing"

// Succeed ends the test when a step of it returned an error.
func Succeed(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
