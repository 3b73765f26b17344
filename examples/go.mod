module github.com/msghandler/msghandler/examples

go 1.26.0

require (
	github.com/msghandler/msghandler/consumer v0.0.0
	github.com/msghandler/msghandler/producer v0.0.0
	modernc.org/sqlite v1.60.0
)

require (
	github.com/dustin/go-humanize v1.0.1 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/mattn/go-isatty v0.0.24 // indirect
	github.com/msghandler/msghandler/internal/amqpconn v0.0.0 // indirect
	github.com/msghandler/msghandler/internal/certs v0.0.0 // indirect
	github.com/msghandler/msghandler/internal/ground v0.0.0 // indirect
	github.com/msghandler/msghandler/proto v0.0.0 // indirect
	github.com/ncruces/go-strftime v1.0.0 // indirect
	github.com/rabbitmq/amqp091-go v1.16.0 // indirect
	github.com/remyoudompheng/bigfft v0.0.0-20230129092748-24d4a6f8daec // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261019180522-ce908d29299b // indirect
	google.golang.org/grpc v1.85.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
	modernc.org/libc v1.77.1 // indirect
	modernc.org/mathutil v1.7.1 // indirect
	modernc.org/memory v1.12.1 // indirect
)

replace (
	github.com/msghandler/msghandler/consumer v0.0.0 => ../consumer
	github.com/msghandler/msghandler/internal/amqpconn v0.0.0 => ../internal/amqpconn
	github.com/msghandler/msghandler/internal/certs v0.0.0 => ../internal/certs
	github.com/msghandler/msghandler/internal/ground v0.0.0 => ../internal/ground
	github.com/msghandler/msghandler/producer v0.0.0 => ../producer
	github.com/msghandler/msghandler/proto v0.0.0 => ../proto
)
