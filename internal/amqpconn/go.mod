module github.com/msghandler/msghandler/internal/amqpconn

go 1.26.0

require (
	github.com/msghandler/msghandler/internal/ground v0.1.0
	github.com/rabbitmq/amqp091-go v1.16.0
)

replace github.com/msghandler/msghandler/internal/ground v0.1.0 => ../../internal/ground
