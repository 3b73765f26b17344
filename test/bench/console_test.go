package bench

import (
	"context"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/msghandler/msghandler/dev/bench/order"
	"github.com/msghandler/msghandler/dev/embedded/embeddedtest"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

var standing = flag.Int("standing", 1_000_000, "pending messages that stand while the console is looked at")

// standingProducers share the pending messages: a single producer may not have so many.
const standingProducers = 4

// BenchmarkConsole measures pages of the console, and the same lists through the API, while a million messages are
// pending: how long each takes, and how long others wait for Redis meanwhile.
//
//	go test ./test/bench -run '^$' -bench '^BenchmarkConsole' -benchtime 1x -timeout 60m
func BenchmarkConsole(b *testing.B) {
	for b.Loop() {
		s := newWorld(b, nil, buildCoordinator(b))
		s.client = redis.NewClient(&redis.Options{Addr: s.redis.Addr, Protocol: 2})
		b.Cleanup(func() { s.client.Close() })
		s.startCoordinator(s.redis.URL(), embeddedtest.Broker(b))
		s.stand(*standing)
		var table strings.Builder
		fmt.Fprintf(&table, "\n%d pending\n\n| page | median | slowest of %d | PING meanwhile: p50 | p99 "+
			"|\n|---|---|---|---|---|\n",
			*standing, views)
		for _, page := range s.pages() {
			all, waits := s.look(page.get)
			fmt.Fprintf(&table, "| %s | %s | %s | %s | %s |\n", page.name, of(all, 50), of(all, 100), of(waits, 50),
				of(waits, 99))
		}
		fmt.Println(table.String())
		pages, took := s.searchAll()
		fmt.Printf("all of them were searched in %.1f s, in %d pages\n", took.Seconds(), pages)
	}
}

// of is a percentile of sorted times.
func of(sorted []time.Duration, percent int) string {
	return milliseconds(1000 * sorted[min(len(sorted)*percent/100, len(sorted)-1)].Seconds())
}

// page is something to look at.
type page struct {
	name string
	get  func()
}

// pages are the measured pages.
func (s *setup) pages() []page {
	var all []page
	for _, at := range []struct{ name, path string }{
		{"overview", "/"},
		{"first page of all", "/messages?state=pending"},
		{"page 200 of all", s.after("/messages?state=pending", 200)},
		{"of one producer", "/messages?state=pending&producer=standing-3"},
		{"at least a second old", "/messages?state=pending&age=1s"},
		{"at least a second old, of one producer", "/messages?state=pending&age=1s&producer=standing-3"},
		{"an exchange that all have", "/messages?state=pending&exchange=shop"},
		{"an exchange that none has", "/messages?state=pending&exchange=none"},
		{"an error that none has", "/messages?state=pending&error=none"},
		{
			"an exchange and an error that none has, of one producer, a second old",
			"/messages?state=pending&exchange=none&error=none&producer=standing-3&age=1s",
		},
	} {
		all = append(all, page{at.name, func() { s.get(at.path) }})
	}
	for _, at := range []struct {
		name string
		r    *adminv1.ListMessagesRequest
	}{
		{"API: at least a second old, of one producer", &adminv1.ListMessagesRequest{
			Filter: &adminv1.MessageFilter{Producer: "standing-3", MinAge: durationpb.New(time.Second)},
		}},
		{"API: an exchange that none has", &adminv1.ListMessagesRequest{Filter: &adminv1.MessageFilter{Exchange: "none"}}},
		{"API: an error that none has", &adminv1.ListMessagesRequest{
			Filter: &adminv1.MessageFilter{ErrorContains: "none"},
		}},
	} {
		at.r.Filter.State = pb.State_STATE_PENDING
		all = append(all, page{at.name, func() {
			_, err := s.admin.ListMessages(context.Background(), at.r)
			s.must(err)
		}})
	}
	return all
}

// searchAll looks for a missing message, page after page until there are no more, as the command line does.
func (s *setup) searchAll() (pages int, took time.Duration) {
	begun := time.Now()
	r := &adminv1.ListMessagesRequest{
		Filter: &adminv1.MessageFilter{State: pb.State_STATE_PENDING, ErrorContains: "none"},
	}
	for more := true; more; more = r.GetPageToken() != "" {
		answer, err := s.admin.ListMessages(context.Background(), r)
		s.must(err)
		r.PageToken = answer.GetNextPageToken()
		pages++
	}
	return pages, time.Since(begun)
}

// stand stores messages without a Confirm call for a day, as the coordinator would, and sooner.
func (s *setup) stand(n int) {
	store, err := redisstore.New(context.Background(), redisstore.Config{
		URL: s.redis.URL(), Prefix: "msghandler", Retention: 10 * time.Minute,
	})
	s.must(err)
	defer store.Close()
	var storing sync.WaitGroup
	for k := range standingProducers {
		storing.Go(func() { s.standOf(store, fmt.Sprintf("standing-%d", k), n/standingProducers) })
	}
	storing.Wait()
	fmt.Printf("%d messages stand\n", n)
}

func (s *setup) standOf(store *redisstore.Store, producer string, n int) {
	body := order.New(64).Of(0)
	for sent := 0; sent < n; {
		var part []halfmsg.Message
		for range min(1000, n-sent) {
			part = append(part, halfmsg.Message{
				Name: halfmsg.Name{Producer: producer, ID: fmt.Sprintf("s-%d", s.ids.Add(1))}, Exchange: "shop",
				RoutingKey: queueName,
				Body:       body, CallbackTarget: s.callbacks, ConfirmAfter: 24 * time.Hour,
			})
		}
		for _, r := range store.Create(context.Background(), part) {
			if r.Err != nil {
				s.b.Error(r.Err)
				return
			}
		}
		sent += len(part)
	}
}

// views is the number of views of each page, and between the time since the last view: the counts are kept for five
// seconds, so some views find them and some do not.
const (
	views   = 10
	between = 600 * time.Millisecond
)

// look times a page, and the wait of other users of Redis meanwhile.
func (s *setup) look(get func()) (all, waits []time.Duration) {
	ticker := time.NewTicker(between)
	defer ticker.Stop()
	for range views {
		<-ticker.C
		begun := time.Now()
		others := s.pings(get)
		all, waits = append(all, time.Since(begun)), append(waits, others...)
	}
	slices.Sort(all)
	slices.Sort(waits)
	return all, waits
}

// pings times PINGs of Redis, one after another, while something happens.
func (s *setup) pings(do func()) (waits []time.Duration) {
	ctx, end := context.WithCancel(context.Background())
	var pinging sync.WaitGroup
	pinging.Go(func() {
		for ctx.Err() == nil {
			begun := time.Now()
			if s.client.Ping(ctx).Err() == nil {
				waits = append(waits, time.Since(begun))
			}
			_ = backoff.Sleep(ctx, time.Millisecond)
		}
	})
	do()
	end()
	pinging.Wait()
	return waits
}

func (s *setup) get(path string) string {
	body, err := fetch(s.console + path)
	s.must(err)
	return body
}

var nextLink = regexp.MustCompile(`rel="next" href="([^"]+)"`)

// after follows the link to the next page so many times.
func (s *setup) after(path string, pages int) string {
	for range pages {
		link := nextLink.FindStringSubmatch(s.get(path))
		if link == nil {
			s.b.Fatalf("%s is the last page", path)
		}
		path = strings.ReplaceAll(link[1], "&amp;", "&")
	}
	return path
}
