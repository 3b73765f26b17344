package faults

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/msghandler/msghandler/test/servers"
)

// natsAccount is an account for the load, with the room of its streams and the subjects to which the coordinators may
// not publish. The tests need no password.
const natsAccount = `
accounts { LOAD {
  jetstream { max_file: %s }
  users: [
    { user: tests, password: tests }
    { user: coordinator, password: secret, permissions: { publish: { deny: %q } } }
  ]
} }
no_auth_user: tests
`

// Values of natsAccount. The load's subjects have no dot.
const (
	muchRoom, noRoom     = "1G", "1K"
	noSubject, allOfLoad = "denied.>", "*"
)

// onNATSAccount is onNATS with one server, on which the coordinators have a user.
func onNATSAccount() options {
	return options{stream: func(w *world) stream {
		server := servers.NATS(w.t, fmt.Sprintf(natsAccount, muchRoom, noSubject))
		s := newNATSStream(w, server)
		s.user = "coordinator:secret@"
		return s
	}}
}

// withoutRoomOnNATS lets the streams of the account have no room.
func withoutRoomOnNATS(ctx context.Context, w *world, _ *rand.Rand) {
	server := onStream[*natsStream](w).servers[0]
	w.withoutRoom(ctx, func() { server.Configure(fmt.Sprintf(natsAccount, noRoom, noSubject)) },
		func() { server.Configure(fmt.Sprintf(natsAccount, muchRoom, noSubject)) })
}

// forbidNATS takes the permission to publish from the coordinators and gives the permission back.
func forbidNATS(ctx context.Context, w *world, _ *rand.Rand) {
	server := onStream[*natsStream](w).servers[0]
	w.refusing(ctx, func() { server.Configure(fmt.Sprintf(natsAccount, muchRoom, allOfLoad)) },
		func() { server.Configure(fmt.Sprintf(natsAccount, muchRoom, noSubject)) })
}
