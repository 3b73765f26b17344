// Package order writes the bodies of loads: JSON as shops send, of an exact size. Zeros would compress to nothing, and
// random bytes not at all; neither says much about users' messages.
package order

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// variety is the number of different bodies of a load, less where mostBytes would be exceeded. Compression looks at one
// body at a time.
const (
	variety   = 256
	mostBytes = 8 << 20
)

// Bodies are orders of one size, the same in every run.
type Bodies [][]byte

// New makes orders of size bytes, cut off at the end where necessary: a small body is no whole order.
func New(size int) Bodies {
	bodies := make(Bodies, min(variety, 1+mostBytes/(size+1)))
	for i := range bodies {
		bodies[i] = write(rand.New(rand.NewPCG(uint64(i), 1)), size) //nolint:gosec // the same orders each time
	}
	return bodies
}

// Of is the body of the n-th message.
func (b Bodies) Of(n uint64) []byte { return b[n%uint64(len(b))] }

var (
	names = strings.Fields("Amelie Bogdan Chiara Dmitri Elif Farid Greta Hugo " +
		"Ines Jakub Katrin Liam Maja Nils Olga Pavel")
	cities = strings.Fields("Aachen Bergamo Coimbra Dresden Eindhoven Fribourg " +
		"Gdansk Haarlem Innsbruck Jena Krakow Leuven")
	goods = strings.Fields("lamp shelf chair kettle curtain mirror blanket drawer " +
		"bowl carpet clock candle basket stool vase")
	looks = strings.Fields("oak walnut white blue large small round folding enamel linen copper woven")
)

// largestItem is more than the size of an item with its comma.
const largestItem = 128

func write(r *rand.Rand, size int) []byte {
	pick := func(of []string) string { return of[r.IntN(len(of))] }
	name := pick(names)
	var b strings.Builder
	fmt.Fprintf(&b, `{"order_id":"%d-%06x","created_at":"2026-%02d-%02dT%02d:%02d:%02d.%03dZ","currency":"EUR",`,
		1_000_000+r.IntN(9_000_000), r.IntN(1<<24),
		1+r.IntN(12), 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60), r.IntN(1000))
	fmt.Fprintf(&b, `"customer":{"id":"cus_%012x","name":"%s","email":"%s.%d@example.com"},`,
		r.Int64N(1<<48), name, strings.ToLower(name), r.IntN(10_000))
	fmt.Fprintf(&b, `"shipping":{"street":"%s street %d","zip":"%05d","city":"%s"},"items":[`,
		pick(cities), 1+r.IntN(200), r.IntN(100_000), pick(cities))
	comma := ""
	for b.Len()+largestItem < size {
		fmt.Fprintf(&b, `%s{"sku":"%04X-%06d","title":"%s %s","quantity":%d,"unit_price":"%d.%02d","tax_rate":"0.19"}`,
			comma, r.IntN(1<<16), r.IntN(1_000_000), pick(looks), pick(goods), 1+r.IntN(5), 1+r.IntN(400), r.IntN(100))
		comma = ","
	}
	b.WriteString(`],"note":"`)
	const end = `"}`
	for b.Len()+len(end) < size {
		b.WriteString(pick(goods) + " ")
	}
	if size <= len(end) {
		return []byte(b.String()[:size])
	}
	return []byte(b.String()[:size-len(end)] + end)
}
