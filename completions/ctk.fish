complete --keep-order --exclusive --command ctk --arguments "(CTK_COMPLETE=fish ctk -- (commandline --current-process --tokenize --cut-at-cursor) (commandline --current-token))"
