// Logs in with Qpid JMS as the variables LOGIN_* say; prints `opened` or why not.
import jakarta.jms.Connection;
import org.apache.qpid.jms.JmsConnectionFactory;

public class LoginClient {
    public static void main(String[] arguments) {
        String mechanism = System.getenv("LOGIN_MECHANISM");
        StringBuilder url = new StringBuilder("amqps://localhost:" + System.getenv("LOGIN_PORT"));
        url.append("?transport.trustAll=true&transport.verifyHost=false&amqp.saslMechanisms=").append(mechanism);
        if (mechanism.equals("EXTERNAL")) {
            url.append("&transport.keyStoreType=PKCS12&transport.keyStorePassword=store-password");
            url.append("&transport.keyStoreLocation=").append(System.getenv("LOGIN_STORE"));
        }
        JmsConnectionFactory factory = new JmsConnectionFactory(url.toString());
        if (!System.getenv("LOGIN_USER").isEmpty()) {
            factory.setUsername(System.getenv("LOGIN_USER"));
            factory.setPassword(System.getenv("LOGIN_SECRET"));
        }
        try (Connection connection = factory.createConnection()) {
            connection.start();
            System.out.println("opened");
        } catch (Exception error) {
            System.out.println("refused " + error);
        }
    }
}
