package orders

import (
	"strings"
	"testing"
)

func TestMalformedOrderIsRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"id":1,"buyer":2,"product":3,"fail":"silent"}`: "",
		`{"id":1,"buyer":2}`:                             "no product",
		`{"buyer":2,"product":3}`:                        "no id",
		`{"id":-1,"buyer":2,"product":3}`:                "no id",
		`{"id":"1","buyer":2,"product":3}`:               "looks like",
		`[]`:                                             "looks like",

		`{"id":1,"buyer":2,"product":3,"fail":"spontaneously"}`: "spontaneously",
	} {
		_, err := parse([]byte(text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
