module github.com/msghandler/msghandler/internal/ground

go 1.26.0
