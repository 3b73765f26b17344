package bench

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/dev/bench"
	"github.com/msghandler/msghandler/proto/certs/certstest"
	"github.com/msghandler/msghandler/test/servers"
)

// BenchmarkSecured measures the cost of TLS between producers and a coordinator: a coordinator without encryption
// takes turns with a coordinator that asks every client for a certificate and uses the names in the certificate.
// Neither encrypts callbacks.
//
//	go test ./test/bench -run '^$' -bench Secured -benchtime 1x -timeout 60m -args -rounds 5 -seconds 4
func BenchmarkSecured(b *testing.B) {
	for b.Loop() {
		s := newWorld(b, servers.PrivateRabbitMQ(b), buildCoordinator(b))
		a := certstest.NewAuthority(b)
		cert, key := a.Issue("127.0.0.1")
		s.startCoordinator(s.redis.URL(), s.rabbit.URL)
		s.startCoordinator(s.redis.URL(), s.rabbit.URL, "MSGHANDLER_GRPC_TLS_CERT="+cert, "MSGHANDLER_GRPC_TLS_KEY="+key,
			"MSGHANDLER_GRPC_TLS_CLIENT_CA="+a.File, "MSGHANDLER_GRPC_CALLERS=dns:*.shop")
		talks := []*tls.Config{nil, a.Client("orders.shop")}
		for _, mode := range modes {
			found := make([][]bench.Report, len(talks))
			for round := range *rounds {
				for i := range talks {
					which := (round + i) % len(talks)
					s.only(which)
					load := s.load()
					load.Mode, load.TLS, load.ConsumeAfter = mode, talks[which], true
					found[which] = append(found[which], s.measure(load))
				}
			}
			reportSecured(mode, found)
		}
	}
}

// only has one coordinator run, and no others.
func (s *setup) only(which int) {
	for i, c := range s.all {
		if i != which {
			c.stop()
		}
	}
	s.all[which].start()
	s.all[which].await()
}

func reportSecured(mode bench.Mode, found [][]bench.Report) {
	fmt.Printf("\n%s, %d bytes each, medians of %d rounds that took turns\n\n", mode, *bodySize, *rounds)
	fmt.Printf("| | messages/s | to plain: median (all) | by CPU | CPU µs/message: %s |\n|%s\n",
		strings.Join(bench.Processes, ", "), strings.Repeat("---|", 5))
	for i, what := range []string{"plain", "TLS, both certificates"} {
		fmt.Printf("| %s | %.0f | %s | %.2f | %s |\n", what, medianOf(found[i], rateOf),
			ratioText(pairs(found[i], found[0], rateOf)),
			median(pairs(found[0], found[i], spentOn)), costs(found[i]))
	}
}
