package natsconn

import "testing"

func TestSubjectsMatchFiltersOfStreams(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		filter, subject string
		want            bool
	}{
		{"a", "a", true},
		{"a", "b", false},
		{"a", "a.b", false},
		{"a.b", "a", false},
		{"a.*", "a.b", true},
		{"a.*", "a", false},
		{"a.*", "a.b.c", false},
		{"*.b", "a.b", true},
		{"a.>", "a.b.c", true},
		{"a.>", "a", false},
		{">", "a", true},
		{"a.*.c", "a.b.d", false},
	} {
		if is := matches(test.filter, test.subject); is != test.want {
			t.Errorf("%s covers %s: %v", test.filter, test.subject, is)
		}
	}
}
