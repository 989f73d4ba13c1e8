use arck_pm::order;

struct Lie;

impl order::DurableSet for Lie {
    fn proven(&self, _: order::seal::Seal) {}
}

fn main() {}
