package defects

import "testing"

// Changed code must not leave a defect without its place.
func TestEveryDefectHasItsPlace(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, d := range All {
		if names[d.Name] {
			t.Errorf("two defects have the name %s", d.Name)
		}
		names[d.Name] = true
		if _, err := d.Write("../..", t.TempDir()); err != nil {
			t.Error(err)
		}
	}
}
