package server_test

import (
	"sync/atomic"
	"testing"

	"github.com/msghandler/msghandler/internal/halfmsg"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// BenchmarkUnaryCalls measures small calls far below every limit, by eight connections of one address.
func BenchmarkUnaryCalls(b *testing.B) {
	h := open(b)
	h.store.put("orders", "1", halfmsg.Pending)
	var clients []msghandlerv1.AdminServiceClient
	for range 8 {
		clients = append(clients, msghandlerv1.NewAdminServiceClient(connect(b, h.conn.Target())))
	}
	request := &msghandlerv1.GetMessageRequest{Producer: "orders", Id: "1"}
	var next atomic.Int64
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		client := clients[next.Add(1)%int64(len(clients))]
		for pb.Next() {
			if _, err := client.GetMessage(b.Context(), request); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
