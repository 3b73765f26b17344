module github.com/msghandler/msghandler/consumer

go 1.26.0

require github.com/msghandler/msghandler/internal/ground v0.1.0
