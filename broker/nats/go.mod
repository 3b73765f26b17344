module github.com/msghandler/msghandler/broker/nats

go 1.26.0

require (
	github.com/msghandler/msghandler/consumer v0.1.0
	github.com/msghandler/msghandler/internal/ground v0.1.0
	github.com/msghandler/msghandler/producer v0.1.0
	github.com/nats-io/nats.go v1.55.0
)

require (
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/msghandler/msghandler/proto v0.1.0 // indirect
	github.com/nats-io/nkeys v0.4.16 // indirect
	github.com/nats-io/nuid v1.0.1 // indirect
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261019180522-ce908d29299b // indirect
	google.golang.org/grpc v1.85.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)
