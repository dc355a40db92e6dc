"""What changes of etcd's keys make a router do, by kind of key (rules K, A-3, A-6, E-6 to E-8, I-5 to I-8, SH-1)."""
