package server_test

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/server"
	"github.com/msghandler/msghandler/internal/server/policy"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	"github.com/msghandler/msghandler/test/must"
)

// benchConnections is how many connections of one address make the calls of a benchmark.
const benchConnections = 8

var getOne = &adminv1.GetMessageRequest{Producer: "orders", Id: "1"}

// BenchmarkUnaryCalls measures small calls far below every limit, by eight connections of one address.
func BenchmarkUnaryCalls(b *testing.B) {
	h := open(b)
	h.store.put("orders", "1", halfmsg.Pending)
	var clients []adminv1.AdminServiceClient
	for range benchConnections {
		clients = append(clients, adminv1.NewAdminServiceClient(connect(b, h.conn.Target())))
	}
	callAll(b, func(i int64) error {
		_, err := clients[i%benchConnections].GetMessage(b.Context(), getOne)
		return err
	})
}

// BenchmarkHTTPCalls measures the same calls by HTTP/1.1, with a client that does as little as a client can.
func BenchmarkHTTPCalls(b *testing.B) {
	inJSON, err := protojson.Marshal(getOne)
	must.Succeed(b, err)
	inProto, err := proto.Marshal(getOne)
	must.Succeed(b, err)
	for _, form := range []struct {
		name, contentType string
		body              []byte
	}{{"JSON", jsonType, inJSON}, {"proto", protoType, inProto}} {
		b.Run(form.name, func(b *testing.B) {
			h := open(b)
			h.store.put("orders", "1", halfmsg.Pending)
			url := h.url() + adminv1.AdminService_GetMessage_FullMethodName
			transport := &http.Transport{MaxIdleConnsPerHost: 2 * benchConnections, MaxConnsPerHost: 2 * benchConnections}
			b.Cleanup(transport.CloseIdleConnections)
			client := &http.Client{Transport: transport}
			callAll(b, func(int64) error {
				answer, err := client.Post(url, form.contentType, bytes.NewReader(form.body))
				if err != nil {
					return err
				}
				_, err = io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close()
				return err
			})
		})
	}
}

// callAll makes calls from many goroutines, and reports the time of the CPU for client and server.
func callAll(b *testing.B, call func(i int64) error) {
	b.Helper()
	var next atomic.Int64
	before := cpuTime(b)
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := call(next.Add(1)); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
}

// cpuTime is what this process has used, in nanoseconds.
func cpuTime(b *testing.B) int64 {
	b.Helper()
	var usage syscall.Rusage
	must.Succeed(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return usage.Utime.Nano() + usage.Stime.Nano()
}

// BenchmarkHalfMessages measures batches of 100 half messages without policies, with policies of others, and with rules
// of every kind.
func BenchmarkHalfMessages(b *testing.B) {
	free, ruled := policy.NewBook(), policy.NewBook()
	free.Use(policy.Set{Named: map[string]policy.Rules{"bills": {MaxBody: 1}}})
	ruled.Use(policy.Set{Others: policy.Rules{
		Exchanges: []string{"stock", "shop"}, RoutingKeys: []string{"*.sent", "pa*"}, MaxBytes: 1 << 60,
		CallsPerSecond: 1_000_000_000,
	}})
	for _, of := range []struct {
		name string
		book *policy.Book
	}{{"none", nil}, {"others", free}, {"rules", ruled}} {
		b.Run(of.name, func(b *testing.B) {
			h := open(b, func(c *server.Config) { c.Policies = of.book })
			h.store.fail = halfmsg.ErrExists // so that the store of the test stays small
			r := batchOf()
			for i := range 100 {
				r.Messages = append(r.Messages, good(strconv.Itoa(i)).GetMessage())
			}
			callAll(b, func(int64) error {
				_, err := h.producers.SendHalfMessages(b.Context(), r)
				return err
			})
		})
	}
}
