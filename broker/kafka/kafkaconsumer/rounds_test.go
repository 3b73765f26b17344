package kafkaconsumer

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Each round has a client of its own. A look at all letters that a coordinator reads must end within its time.
func TestSmallLettersShareRounds(t *testing.T) {
	t.Parallel()
	places := make([]place, 20_000)
	for i := range places {
		places[i] = placeOf(&kgo.Record{Offset: int64(i), Value: make([]byte, 500)})
	}
	rounds := 0
	for ; len(places) > 0; rounds++ {
		places = places[roundOf(places):]
	}
	if rounds > 5 {
		t.Errorf("20,000 letters of 500 bytes are read in %d rounds", rounds)
	}
}
